// SPDX-License-Identifier: Apache-2.0

package decapplane

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/vishvananda/netlink"

	"culvert/internal/host/pins"
	"culvert/internal/testbed"
)

// lostHere lists the ends of tunnels whose interfaces were deleted.
func lostHere(t *testing.T) []pins.Unattached {
	t.Helper()
	lost, err := Lost()
	if err != nil {
		t.Fatal(err)
	}
	return lost
}

// TestDecapMadeAgain deletes an interface and makes it again. Lost and List tell of it, and Reattach restores options and
// counters.
func TestDecapMadeAgain(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	o := defaults()
	if err := Attach([]string{"v0"}, o); err != nil {
		t.Fatal(err)
	}
	gue := tunnelled{kind: "gue1", outer: 4, inner: 4}.frame()
	throughKernel(t, "v0", gue)
	counted := packetsOf(endsHere(t)["v0"])
	if lost := lostHere(t); len(lost) != 0 || len(counted) == 0 {
		t.Fatalf("lost %v, counted %v", lost, counted)
	}
	testbed.DeleteDevice(t, "v0")
	want := []pins.Unattached{{Interface: "v0", Why: pins.Gone}}
	if lost := lostHere(t); !reflect.DeepEqual(lost, want) {
		t.Errorf("lost %v, want %v", lost, want)
	}
	if d := endsHere(t)["v0"]; d.Unattached != pins.Gone || !reflect.DeepEqual(d.Options, o) || !reflect.DeepEqual(packetsOf(d), counted) {
		t.Errorf("listed after deletion: %+v", d)
	}
	if _, err := Reattach("v0"); err == nil {
		t.Error("attached to nothing")
	}

	testbed.AddVeth(t, "v0", "u1")
	want[0].Why = pins.Replaced
	if lost := lostHere(t); !reflect.DeepEqual(lost, want) {
		t.Errorf("lost %v, want %v", lost, want)
	}
	// An Attach that fails changes nothing.
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}); err != nil {
		t.Fatal(err)
	}
	if err := Attach([]string{"v0", "br0"}, o); err == nil {
		t.Error("attached to a bridge")
	}
	if d := endsHere(t)["v0"]; d.Unattached != pins.Replaced || !reflect.DeepEqual(packetsOf(d), counted) || testbed.XDPProgram(t, "v0") != 0 {
		t.Errorf("after an error: %+v, program %d", d, testbed.XDPProgram(t, "v0"))
	}
	if again, err := Reattach("v0"); !again || err != nil {
		t.Fatal(again, err)
	}
	if again, err := Reattach("v0"); again || err != nil {
		t.Error("attached a second time:", again, err)
	}
	d := endsHere(t)["v0"]
	if d.Unattached != "" || !reflect.DeepEqual(d.Options, o) || !reflect.DeepEqual(packetsOf(d), counted) || testbed.XDPProgram(t, "v0") == 0 {
		t.Errorf("attached again: %+v, program %d", d, testbed.XDPProgram(t, "v0"))
	}
	throughKernel(t, "v0", gue)
	if now := packetsOf(endsHere(t)["v0"]); reflect.DeepEqual(now, counted) {
		t.Errorf("counted %v, as before", now)
	}

	// Detach removes what is left of a deleted interface.
	testbed.DeleteDevice(t, "v0")
	if off, err := Detach("v0"); !off || err != nil {
		t.Error(off, err)
	}
	if got := endsHere(t); len(got) != 0 {
		t.Errorf("listed %v\n%s", got, testbed.Tree(t))
	}
}

// TestDecapMadeAgainAddresses: with OwnLocal, Reattach takes the host's former addresses and its present ones.
func TestDecapMadeAgainAddresses(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	testbed.AddVeth(t, "w0", "w1")
	addr := func(on, text string) {
		t.Helper()
		l, err := netlink.LinkByName(on)
		if err != nil {
			t.Fatal(err)
		}
		a, err := netlink.ParseAddr(text)
		if err == nil {
			err = netlink.AddrAdd(l, a)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	addr("v0", "10.0.0.11/24")
	o := defaults()
	o.Local = nil
	if err := Attach([]string{"v0"}, o); err != nil {
		t.Fatal(err)
	}
	testbed.DeleteDevice(t, "v0")
	testbed.AddVeth(t, "v0", "v1")
	addr("w0", "10.0.1.11/24")
	if again, err := Reattach("v0"); !again || err != nil {
		t.Fatal(again, err)
	}
	want := []netip.Addr{netip.MustParseAddr("10.0.0.11"), netip.MustParseAddr("10.0.1.11")}
	if got := endsHere(t)["v0"].Options; !reflect.DeepEqual(got.Local, want) || !got.OwnLocal {
		t.Errorf("to %v (own: %v), want %v", got.Local, got.OwnLocal, want)
	}
}

// TestDecapMoved moves an interface to another network namespace. Lost and List tell of it, and a new interface of its name gets
// the end of tunnels.
func TestDecapMoved(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	o := defaults()
	if err := Attach([]string{"v0"}, o); err != nil {
		t.Fatal(err)
	}
	index := testbed.Device(t, "v0").Index
	testbed.MoveDevice(t, "v0", testbed.OtherSpace(t, 0))
	testbed.AddVethAt(t, index, "v9", "v8") // has the index of the interface that was moved
	want := []pins.Unattached{{Interface: "v0", Why: pins.Gone, Moved: true}}
	if lost := lostHere(t); !reflect.DeepEqual(lost, want) {
		t.Errorf("lost %v, want %v", lost, want)
	}
	if got := endsHere(t); len(got) != 1 || got["v0"].Unattached != pins.Gone {
		t.Errorf("listed %v", got)
	}
	testbed.AddVeth(t, "v0", "v7")
	if again, err := Reattach("v0"); !again || err != nil {
		t.Fatal(again, err)
	}
	if got := endsHere(t); len(got) != 1 || got["v0"].Unattached != "" || !reflect.DeepEqual(got["v0"].Options, o) {
		t.Errorf("listed %v", got)
	}
	if lost := lostHere(t); len(lost) != 0 || testbed.XDPProgram(t, "v0") == 0 {
		t.Errorf("lost %v, program %d", lost, testbed.XDPProgram(t, "v0"))
	}
	if off, err := Detach("v0"); !off || err != nil || testbed.XDPProgram(t, "v0") != 0 {
		t.Error(off, err)
	}
}
