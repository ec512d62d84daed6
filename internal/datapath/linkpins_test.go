// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/pins"
	"culvert/internal/testbed"
)

func rename(t *testing.T, from, to string) {
	t.Helper()
	l, err := netlink.LinkByName(from)
	if err == nil {
		err = netlink.LinkSetDown(l)
	}
	if err == nil {
		err = netlink.LinkSetName(l, to)
	}
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	if err != nil {
		t.Fatalf("rename %s to %s: %v", from, to, err)
	}
}

// received returns the packets of all interfaces that have ever been served.
func received(t *testing.T, inst *Instance) map[string]uint64 {
	t.Helper()
	ports, err := inst.Ports()
	if err != nil {
		t.Fatal(err)
	}
	n := make(map[string]uint64)
	for _, p := range ports {
		n[p.Interface], _ = p.Total()
	}
	return n
}

// TestRenamed attaches again after interfaces have changed their names: v0 has received 3 packets
// before, v2 has received 4. One more comes in by each interface that is attached then.
func TestRenamed(t *testing.T) {
	tests := []struct {
		name     string
		change   func(t *testing.T)
		attach   []string
		detached []string
		want     map[string]uint64
	}{
		{"one", func(t *testing.T) { rename(t, "v0", "w0") }, []string{"w0", "v2"}, nil,
			map[string]uint64{"w0": 4, "v2": 5}},
		{"swapped", func(t *testing.T) { rename(t, "v0", "x"); rename(t, "v2", "v0"); rename(t, "x", "v2") },
			[]string{"v0", "v2"}, nil, map[string]uint64{"v0": 5, "v2": 4}},
		{"one after the other", func(t *testing.T) { rename(t, "v2", "w2"); rename(t, "v0", "v2") },
			[]string{"v2", "w2"}, nil, map[string]uint64{"v2": 4, "w2": 5}},
		{"to a name with counters of its own", func(t *testing.T) { testbed.DeleteDevice(t, "v2"); rename(t, "v0", "v2") },
			[]string{"v2"}, nil, map[string]uint64{"v0": 3, "v2": 5}},
		{"another has the name now", func(t *testing.T) { rename(t, "v0", "w0"); testbed.AddVeth(t, "v0", "v7") },
			[]string{"v0"}, []string{"w0", "v2"}, map[string]uint64{"v0": 4, "v2": 4}},
		{"both wanted", func(t *testing.T) { rename(t, "v0", "w0"); testbed.AddVeth(t, "v0", "v7") },
			[]string{"v0", "w0"}, []string{"v2"}, map[string]uint64{"v0": 1, "w0": 4, "v2": 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			testbed.InNamespace(t)
			v0, v2 := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v2", "v3")
			inst := mustAttach(t, testConfig(1, 2), "v0", "v2")
			openWay(t, inst, v2)
			testbed.Feed(t, inst, transitFrame(t, v0, testKey), "v0", 3)
			testbed.Feed(t, inst, transitFrame(t, v2, testKey), "v2", 4)
			inst.Close()
			tt.change(t)

			// What fails at its last step leaves everything as it was.
			addBridge(t)
			before := testbed.Tree(t)
			_, err := Attach(Options{Name: "br1", Interfaces: append(slices.Clone(tt.attach), "bridge"), Parts: []Part{NewSCIONPart(testConfig(1, 2))}})
			if err == nil || !strings.Contains(err.Error(), "no native XDP") {
				t.Errorf("attached to a bridge: %v", err)
			}
			if after := testbed.Tree(t); after != before {
				t.Errorf("pins are now\n%sand were\n%s", after, before)
			}

			inst = mustAttach(t, testConfig(1, 2), tt.attach...)
			if got := inst.Attached(); !inst.Adopted() || !slices.Equal(got, slices.Sorted(slices.Values(tt.attach))) {
				t.Errorf("adopted %v, attached to %v", inst.Adopted(), got)
			}
			for _, name := range tt.attach {
				testbed.Feed(t, inst, transitFrame(t, testbed.Device(t, name), testKey), name, 1)
				if testbed.XDPProgram(t, name) == 0 {
					t.Errorf("%s carries no program", name)
				}
			}
			for _, name := range tt.detached {
				if testbed.XDPProgram(t, name) != 0 {
					t.Errorf("%s still carries a program", name)
				}
			}
			if got := received(t, inst); !maps.Equal(got, tt.want) {
				t.Errorf("packets %v, want %v", got, tt.want)
			}
		})
	}
}

// TestDots has routers and interfaces whose names only differ in what bpffs does not take.
func TestDots(t *testing.T) {
	testbed.InNamespace(t)
	routers := []string{"a.b", "a_b", "a%2eb", "a%252eb", "..", "[a"}
	for n, id := range routers {
		iface := string(rune('a'+n)) + ".7"
		testbed.AddVeth(t, iface, string(rune('a'+n))+"-peer")
		inst, err := Attach(Options{Name: id, Interfaces: []string{iface}, Parts: []Part{NewSCIONPart(testConfig(1))}})
		if err != nil {
			t.Fatal(err)
		}
		if got := inst.Attached(); inst.Adopted() || !slices.Equal(got, []string{iface}) {
			t.Errorf("router %s: adopted %v, attached to %v", id, inst.Adopted(), got)
		}
		if got := pins.Unescape(filepath.Base(inst.Pins())); got != id {
			t.Errorf("the pins of %s are those of %s", id, got)
		}
		inst.Close()
	}
	all, err := ListHere()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(all)
	if len(all) != len(routers) {
		t.Errorf("%d routers are listed, want %d", len(all), len(routers))
	}
	// What is pinned for one router is not for another.
	testbed.AddVeth(t, "z", "z-peer")
	if err := os.Rename(filepath.Join(testbed.SpaceDir(t), "a%2eb"), filepath.Join(testbed.SpaceDir(t), "z")); err != nil {
		t.Fatal(err)
	}
	_, err = Attach(Options{Name: "z", Interfaces: []string{"z"}, Parts: []Part{NewSCIONPart(testConfig(1))}})
	if err == nil || !strings.Contains(err.Error(), "holds the pins of router a.b") {
		t.Errorf("router z took over another one: %v", err)
	}
}

// TestForget looks from one network namespace at what is left of another.
func TestForget(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	inst := mustAttach(t, testConfig(1), "v0")
	dir := inst.dir
	forget := func(when string, want bool) {
		t.Helper()
		seen, err := openInstance(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer seen.Close()
		gone, err := seen.Forget()
		if _, left := os.Stat(dir); err != nil || gone != want || os.IsNotExist(left) != want {
			t.Errorf("%s: forgotten %v, %v; its directory: %v", when, gone, err, left)
		}
	}
	first, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	forget("attached and served", false)
	inst.Close()
	forget("attached", false)

	if err := unix.Setns(int(first.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	if _, err := net.InterfaceByName("v0"); err != nil || testbed.XDPProgram(t, "v0") == 0 {
		t.Fatalf("v0 carries no program: %v", err)
	}
	inst = mustAttach(t, testConfig(1), "v0")
	testbed.DeleteDevice(t, "v0")
	forget("served", false)
	inst.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	forget("neither", true)
	if _, err := os.Stat(filepath.Dir(dir)); !os.IsNotExist(err) {
		t.Errorf("the namespace's directory is left: %v", err)
	}
}
