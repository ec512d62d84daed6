// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"culvert/internal/host/pins"
	"culvert/internal/testbed"
)

// TestDots attaches routers whose names have dots, which bpffs refuses, and names that a careless escape would confuse.
func TestDots(t *testing.T) {
	testbed.InNamespace(t)
	routers := []string{"a.b", "a_b", "a%2eb", "a%252eb", "..", "[a"}
	for n, id := range routers {
		iface := string(rune('a'+n)) + ".7"
		testbed.AddVeth(t, iface, string(rune('a'+n))+"-peer")
		inst, err := Attach(Options{Name: id, Interfaces: []string{iface}})
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
	// Attach does not adopt the pins of a router of another name.
	testbed.AddVeth(t, "z", "z-peer")
	if err := os.Rename(filepath.Join(testbed.SpaceDir(t), "a%2eb"), filepath.Join(testbed.SpaceDir(t), "z")); err != nil {
		t.Fatal(err)
	}
	_, err = Attach(Options{Name: "z", Interfaces: []string{"z"}})
	if err == nil || !strings.Contains(err.Error(), "holds the pins of data plane a.b") {
		t.Errorf("router z adopted another one: %v", err)
	}
}

// TestForget calls Forget in another network namespace than the instance's.
func TestForget(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	inst := mustAttach(t, "v0")
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
	inst = mustAttach(t, "v0")
	testbed.DeleteDevice(t, "v0")
	forget("served", false)
	inst.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	forget("neither attached nor served", true)
	if _, err := os.Stat(filepath.Dir(dir)); !os.IsNotExist(err) {
		t.Errorf("the namespace's directory is left: %v", err)
	}
}
