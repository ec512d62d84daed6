// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/host/bpffs"
	"culvert/internal/host/pins"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

func TestAttachAndDetach(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	testbed.AddVeth(t, "v2", "v3")
	c := scionbed.Config(1, 2)
	inst := scionbed.Attach(t, c, "v2", "v0", "v2")
	if got := inst.Attached(); !slices.Equal(got, []string{"v0", "v2"}) {
		t.Errorf("attached to %v", got)
	}
	if inst.Adopted() || !inst.Served() || inst.ServerPID() != os.Getpid() || !inst.Here() || inst.Generic() {
		t.Errorf("adopted %v, served %v by %d, here %v, generic %v",
			inst.Adopted(), inst.Served(), inst.ServerPID(), inst.Here(), inst.Generic())
	}
	if entries, err := os.ReadDir(inst.Pins()); err != nil || len(entries) != 3 { // two links, one generation
		t.Errorf("pins in %s: %v, %v", inst.Pins(), entries, err)
	}
	if at, ok := inst.LoadedAt(); !ok || time.Since(at).Abs() > time.Hour {
		t.Errorf("loaded at %v, %v", at, ok)
	}
	inst.Close()

	all, err := datapath.ListHere()
	if err != nil || len(all) != 1 {
		t.Fatalf("%d instances listed, %v", len(all), err)
	}
	seen := all[0]
	defer seen.Close()
	if seen.Name() != "br1" || !reflect.DeepEqual(scionplane.Of(seen).Config(), c) || seen.Served() || seen.ServerPID() != 0 {
		t.Errorf("listed %s, served %v by %d, with %+v", seen.Name(), seen.Served(), seen.ServerPID(), scionplane.Of(seen).Config())
	}
	if testbed.XDPProgram(t, "v0") == 0 || testbed.XDPProgram(t, "v0") != testbed.XDPProgram(t, "v2") {
		t.Errorf("programs %d and %d", testbed.XDPProgram(t, "v0"), testbed.XDPProgram(t, "v2"))
	}

	if err := seen.Detach("v1"); err == nil {
		t.Error("detached from an interface that was not attached")
	}
	if err := seen.Detach("v0"); err != nil {
		t.Fatal(err)
	}
	if testbed.XDPProgram(t, "v0") != 0 || testbed.XDPProgram(t, "v2") == 0 || !slices.Equal(seen.Attached(), []string{"v2"}) {
		t.Errorf("after detaching v0: programs %d and %d, attached %v",
			testbed.XDPProgram(t, "v0"), testbed.XDPProgram(t, "v2"), seen.Attached())
	}
	if err := seen.Detach("v2"); err != nil {
		t.Fatal(err)
	}
	if left := testbed.Tree(t); testbed.XDPProgram(t, "v2") != 0 || left != "" {
		t.Errorf("after the last: program %d, pins %s", testbed.XDPProgram(t, "v2"), left)
	}
	if here, err := datapath.ListHere(); err != nil || len(here) != 0 {
		t.Errorf("%d instances are left here, %v", len(here), err)
	}
	if inst, err := datapath.OpenHere("br1"); inst != nil || err != nil {
		t.Errorf("opened what does not exist: %v", err)
	}
}

func TestDetachAll(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	testbed.AddVeth(t, "v2", "v3")
	inst := scionbed.Attach(t, scionbed.Config(1), "v0", "v2")
	testbed.DeleteDevice(t, "v2") // and with it what was attached to it
	if err := inst.DetachAll(); err != nil {
		t.Fatal(err)
	}
	if left := testbed.Tree(t); testbed.XDPProgram(t, "v0") != 0 || left != "" {
		t.Errorf("program %d, pins %s", testbed.XDPProgram(t, "v0"), left)
	}
}

// TestOneServer attaches an instance that another process serves, and later this process itself. Both are refused.
func TestOneServer(t *testing.T) {
	testbed.InNamespace(t)
	v0 := testbed.AddVeth(t, "v0", "v1")
	holder := startHolder(t, "v0")
	running := testbed.XDPProgram(t, "v0")
	refused := func() {
		t.Helper()
		_, err := datapath.Attach(datapath.Options{Name: "br1", Interfaces: []string{"v0"}, Parts: scionbed.Parts(scionbed.Config(1))})
		if err == nil || !strings.Contains(err.Error(), "served by process ") {
			t.Errorf("second attach: %v", err)
		}
	}
	refused()
	seen, err := datapath.OpenHere("br1")
	if err != nil {
		t.Fatal(err)
	}
	if !seen.Served() || seen.ServerPID() != holder.Process.Pid {
		t.Errorf("served %v by %d, should be by %d", seen.Served(), seen.ServerPID(), holder.Process.Pid)
	}
	scionbed.Open(t, scionplane.Of(seen), v0)
	testbed.Feed(t, seen, scionbed.TransitFrame(t, v0, scionbed.Key), "v0", 3)
	seen.Close()

	kill(holder)
	if testbed.XDPProgram(t, "v0") != running {
		t.Error("the program went with its process")
	}
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "v0")
	if !inst.Adopted() {
		t.Error("not adopted")
	}
	if _, by, _ := testbed.Counted(t, inst, "v0"); by[scionbed.Forwarded] != 3 {
		t.Errorf("counters %v", by)
	}
	refused()
}

// TestServedDoesNotRefuse takes the server lock again and again while another goroutine calls Served all the time.
func TestServedDoesNotRefuse(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	inst := scionbed.Attach(t, scionbed.Config(1), "v0")
	inst.Close()
	watcher, err := datapath.OpenHere("br1")
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				watcher.Served()
				runtime.Gosched()
			}
		}
	}()
	for n := range 20_000 {
		lock, err := datapath.LockInstance(inst.Dir(), "br1")
		if err != nil {
			t.Errorf("attempt %d: %v", n, err)
			break
		}
		lock.Close()
	}
	close(stop)
	<-stopped
}

// TestRefused checks that an Attach that fails changes nothing, whether a data plane runs already or not.
func TestRefused(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T)
		options datapath.Options
		config  scionplane.Config
		want    string
	}{
		{
			name: "no interface", options: datapath.Options{Name: "br1"},
			config: scionbed.Config(1), want: "name at least one",
		},
		{
			name: "no such interface", options: datapath.Options{Name: "br1", Interfaces: []string{"v0", "nope"}},
			config: scionbed.Config(1, 3), want: "interface nope does not exist",
		},
		{
			name: "foreign program on the second", options: datapath.Options{Name: "br1", Interfaces: []string{"v0", "v2"}},
			prepare: func(t *testing.T) { testbed.AttachForeign(t, "v2") },
			config:  scionbed.Config(1, 3), want: "interface v2 carries XDP program",
		},
		{
			// This fails only after v0 has been attached.
			name: "second without native XDP", options: datapath.Options{Name: "br1", Interfaces: []string{"v0", "bridge"}},
			prepare: func(t *testing.T) { testbed.AddBridge(t, "bridge") }, config: scionbed.Config(1, 3), want: "its driver has no native XDP",
		},
		{
			name:    "second without native XDP, same configuration",
			options: datapath.Options{Name: "br1", Interfaces: []string{"v0", "bridge"}},
			prepare: func(t *testing.T) { testbed.AddBridge(t, "bridge") }, config: scionbed.Config(1, 2), want: "its driver has no native XDP",
		},
		{
			name: "no internal link", options: datapath.Options{Name: "br1", Interfaces: []string{"v0"}},
			config: scionplane.Config{Interfaces: scionbed.Config(1, 2).Interfaces}, want: "no internal link",
		},
		{
			name: "two links over one pair of addresses", options: datapath.Options{Name: "br1", Interfaces: []string{"v0"}},
			config: func() scionplane.Config {
				c := scionbed.Config(1, 2)
				c.Links[2].Local, c.Links[2].Remote = c.Links[1].Local, c.Links[1].Remote
				return c
			}(), want: "both go from",
		},
		{
			name: "name that is no file name", options: datapath.Options{Name: "../br1", Interfaces: []string{"v0"}},
			config: scionbed.Config(1), want: "cannot be used as a file name",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			testbed.InNamespace(t)
			v0 := testbed.AddVeth(t, "v0", "v1")
			testbed.AddVeth(t, "v2", "v3")
			if tt.prepare != nil {
				tt.prepare(t)
			}
			other := testbed.XDPProgram(t, "v2")
			check := func(program uint32, pins string) {
				t.Helper()
				tt.options.Parts = scionbed.Parts(tt.config)
				inst, err := datapath.Attach(tt.options)
				if err == nil {
					inst.Close()
					t.Fatal("attached")
				}
				if s := err.Error(); !strings.Contains(s, tt.want) || strings.Contains(s, "\n") {
					t.Errorf("error %q, want one line with %q", s, tt.want)
				}
				if got := testbed.XDPProgram(t, "v0"); got != program {
					t.Errorf("v0 carries program %d, carried %d", got, program)
				}
				if got := testbed.XDPProgram(t, "v2"); got != other {
					t.Errorf("v2 carries program %d, carried %d", got, other)
				}
				if got := testbed.Tree(t); got != pins {
					t.Errorf("pins are now\n%sand were\n%s", got, pins)
				}
			}
			check(0, "")

			inst := scionbed.Attach(t, scionbed.Config(1, 2), "v0")
			scionbed.Open(t, inst, v0)
			frame := scionbed.TransitFrame(t, v0, scionbed.Key)
			testbed.Feed(t, inst, frame, "v0", 2)
			inst.Close()
			check(testbed.XDPProgram(t, "v0"), testbed.Tree(t))
			again, err := datapath.OpenHere("br1")
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			testbed.Feed(t, again, frame, "v0", 1)
			if _, by, total := testbed.Counted(t, again, "v0"); by[scionbed.Forwarded] != 3 || total != 3 {
				t.Errorf("counters after it: %v", by)
			}
			if !reflect.DeepEqual(scionplane.Of(again).Config(), scionbed.Config(1, 2)) {
				t.Errorf("configuration after it: %+v", scionplane.Of(again).Config())
			}
		})
	}
}

// TestModeStays refuses to change from native to generic mode.
func TestModeStays(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	inst := scionbed.Attach(t, scionbed.Config(1), "v0")
	inst.Close()
	running := testbed.XDPProgram(t, "v0")
	_, err := datapath.Attach(datapath.Options{Name: "br1", Interfaces: []string{"v0"}, Generic: true, Parts: scionbed.Parts(scionbed.Config(1))})
	if err == nil || !strings.Contains(err.Error(), "attached in native mode") || !strings.Contains(err.Error(), "culvert detach v0") {
		t.Errorf("changing the mode of what runs: %v", err)
	}
	if testbed.XDPProgram(t, "v0") != running {
		t.Error("refused, but swapped")
	}
	if err := inst.Detach("v0"); err != nil {
		t.Fatal(err)
	}
	inst.Instance, err = datapath.Attach(datapath.Options{Name: "br1", Interfaces: []string{"v0"}, Generic: true, Parts: scionbed.Parts(scionbed.Config(1))})
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Close()
	l, err := netlink.LinkByName("v0")
	if err != nil {
		t.Fatal(err)
	}
	if mode := l.Attrs().Xdp.AttachMode; mode != 2 /* XDP_ATTACHED_SKB, linux/if_link.h */ || !inst.Generic() {
		t.Errorf("mode %d, generic %v", mode, inst.Generic())
	}
}

// TestDiedBetweenGenerations adopts a data plane after a process has died between pinning and swapping.
func TestDiedBetweenGenerations(t *testing.T) {
	testbed.InNamespace(t)
	v0 := testbed.AddVeth(t, "v0", "v1")
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "v0")
	scionbed.Open(t, inst, v0)
	frame := scionbed.TransitFrame(t, v0, scionbed.Key)
	testbed.Feed(t, inst, frame, "v0", 4)

	// A complete generation with another configuration, and an incomplete one. Neither came into force.
	datapath.LeaveDeadGeneration(t, inst.Instance, scionbed.Parts(scionbed.Config(7)), v0)
	if err := os.Mkdir(filepath.Join(inst.Dir(), "9"), 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Pin(filepath.Join(inst.Dir(), "9", bpfobj.PipelineMapCounters)); err != nil {
		t.Fatal(err)
	}
	dir := inst.Dir()
	inst.Close()

	seen, err := datapath.OpenHere("br1")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(scionplane.Of(seen).Config(), scionbed.Config(1, 2)) {
		t.Errorf("opened the generation that does not run: %+v", scionplane.Of(seen).Config())
	}
	seen.Close()
	inst = scionbed.Attach(t, scionbed.Config(1, 2), "v0")
	if gens := datapath.Generations(dir); len(gens) != 1 {
		t.Errorf("generations %v are left", gens)
	}
	testbed.Feed(t, inst, frame, "v0", 1)
	if _, by, _ := testbed.Counted(t, inst, "v0"); by[scionbed.Forwarded] != 5 {
		t.Errorf("counters %v", by)
	}
}

// TestNothingRuns attaches where pins are left without a link and without a complete generation.
func TestNothingRuns(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	if err := os.MkdirAll(filepath.Join(testbed.SpaceDir(t), "br1", "3"), 0o700); err != nil {
		t.Fatal(err)
	}
	if all, err := datapath.ListHere(); err != nil || len(all) != 0 {
		t.Errorf("listed %d, %v", len(all), err)
	}
	inst := scionbed.Attach(t, scionbed.Config(1), "v0")
	if inst.Adopted() || !slices.Equal(datapath.Generations(inst.Dir()), []int{4}) {
		t.Errorf("adopted %v, generations %v", inst.Adopted(), datapath.Generations(inst.Dir()))
	}
}

// TestNamespaceGone attaches where pins are left of an earlier network namespace that had the same inode number.
func TestNamespaceGone(t *testing.T) {
	testbed.InNamespace(t)
	v0 := testbed.AddVeth(t, "v0", "v1")
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "v0")
	scionbed.Open(t, inst, v0)
	testbed.Feed(t, inst, scionbed.TransitFrame(t, v0, scionbed.Key), "v0", 4)
	inst.Close()
	dir, first := testbed.SpaceDir(t), inst.Cookie()

	testbed.DeleteDevice(t, "v0")
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	here, err := pins.Here()
	if err != nil {
		t.Fatal(err)
	}
	if here.Cookie == first {
		t.Fatal("two namespaces have one cookie")
	}
	// Pretend that the new namespace has the inode number of the first one, which the kernel may reuse.
	moved := testbed.SpaceDir(t)
	if moved != dir {
		if err := os.Rename(dir, moved); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(moved) })
	}
	datapath.ReplaceNetNS(t, inst.Instance, filepath.Join(moved, "br1"), here.Inode)

	if all, err := datapath.ListHere(); err != nil || len(all) != 0 {
		t.Errorf("listed %d of another namespace, %v", len(all), err)
	}
	testbed.AddVeth(t, "v0", "v1")
	inst = scionbed.Attach(t, scionbed.Config(1, 2), "v0")
	if inst.Adopted() {
		t.Error("adopted what another namespace has left")
	}
	if keys, err := inst.Keys(); err != nil || len(keys) != 0 {
		t.Errorf("keys of another namespace: %v, %v", keys, err)
	}
	// The kernel itself may have sent packets on the new veth already.
	if _, by, total := testbed.Counted(t, inst, "v0"); total != by["pass other"] {
		t.Errorf("counters of another namespace: %v", by)
	}
	if gens := datapath.Generations(inst.Dir()); len(gens) != 1 {
		t.Errorf("generations %v", gens)
	}
}

// TestPinnedOnTheHost attaches with a /sys of its own, as 'ip netns exec' mounts for its command. The pins are in the host's
// bpffs all the same.
func TestPinnedOnTheHost(t *testing.T) {
	t.Run("nothing on /sys/fs/bpf", func(t *testing.T) { attachWithFreshSys(t, false) })
	t.Run("another bpffs on /sys/fs/bpf", func(t *testing.T) { attachWithFreshSys(t, true) })
}

func attachWithFreshSys(t *testing.T, private bool) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	path := pins.LinkPath(filepath.Join(testbed.SpaceDir(t), "br1"), "v0")
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	mount := func(source, target, fs string, flags uintptr) {
		t.Helper()
		if err := unix.Mount(source, target, fs, flags, ""); err != nil {
			t.Fatalf("mount %s: %v", target, err)
		}
	}
	mount("", "/", "none", unix.MS_SLAVE|unix.MS_REC)
	mount("sysfs", "/sys", "sysfs", 0)
	if private {
		mount("bpf", bpffs.Path, "bpf", 0)
	}
	inst := scionbed.Attach(t, scionbed.Config(1), "v0")
	if _, err := os.Stat(filepath.Join(bpffs.Path, "culvert")); !os.IsNotExist(err) {
		t.Errorf("pinned inside: %v", err)
	}
	seen, err := datapath.OpenHere("br1")
	if err != nil {
		t.Fatalf("inside: %v", err)
	}
	defer seen.Close()
	inst.Close()
	// Other threads are still in the host's mount namespace.
	outside := make(chan error)
	go func() {
		l, err := link.LoadPinnedLink(path, nil)
		if err == nil {
			l.Close()
		}
		outside <- err
	}()
	if err := <-outside; err != nil {
		t.Errorf("outside: %v", err)
	}
	if err := seen.DetachAll(); err != nil {
		t.Errorf("detach inside: %v", err)
	}
}
