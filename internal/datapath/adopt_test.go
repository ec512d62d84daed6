// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"slices"
	"testing"

	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// TestOtherInterfaces attaches again to fewer and to other interfaces.
func TestOtherInterfaces(t *testing.T) {
	testbed.InNamespace(t)
	v0, v2 := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v2", "v3")
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "v0", "v2")
	scionbed.Open(t, inst, v2)
	testbed.Feed(t, inst, scionbed.TransitFrame(t, v0, scionbed.Key), "v0", 3)
	testbed.Feed(t, inst, scionbed.TransitFrame(t, v2, scionbed.Key), "v2", 4)
	inst.Close()

	inst = scionbed.Attach(t, scionbed.Config(1, 2), "v2")
	if got := inst.Attached(); !slices.Equal(got, []string{"v2"}) || testbed.XDPProgram(t, "v0") != 0 {
		t.Errorf("attached to %v, v0 carries program %d", got, testbed.XDPProgram(t, "v0"))
	}
	for name, want := range map[string]uint64{"v0": 3, "v2": 4} {
		port, by, _ := testbed.Counted(t, inst, name)
		if by[scionbed.Forwarded] != want || port.Attached != (name == "v2") {
			t.Errorf("%s: attached %v, %v", name, port.Attached, by)
		}
	}
	inst.Close()

	inst = scionbed.Attach(t, scionbed.Config(1, 2), "v0")
	testbed.Feed(t, inst, scionbed.TransitFrame(t, v0, scionbed.Key), "v0", 1)
	if _, by, _ := testbed.Counted(t, inst, "v0"); by[scionbed.Forwarded] != 4 {
		t.Errorf("v0 is back with %v", by)
	}
}

// TestDeviceComesBack deletes an attached device and makes one of the same name.
func TestDeviceComesBack(t *testing.T) {
	testbed.InNamespace(t)
	v0, v2 := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v2", "v3")
	inst := scionbed.Attach(t, scionbed.Config(1, 2), "v0", "v2")
	scionbed.Open(t, inst, v2)
	testbed.Feed(t, inst, scionbed.TransitFrame(t, v0, scionbed.Key), "v0", 3)

	testbed.DeleteDevice(t, "v0")
	if got := inst.Attached(); !slices.Equal(got, []string{"v2"}) {
		t.Errorf("attached to %v", got)
	}
	if port, by, _ := testbed.Counted(t, inst, "v0"); port.Attached || by[scionbed.Forwarded] != 3 {
		t.Errorf("v0 without its device: attached %v, %v", port.Attached, by)
	}
	inst.Close()

	again := testbed.AddVeth(t, "v0", "v1")
	if again.Index == v0.Index {
		t.Fatal("the device has its old index")
	}
	inst = scionbed.Attach(t, scionbed.Config(1, 2), "v0", "v2")
	testbed.Feed(t, inst, scionbed.TransitFrame(t, again, scionbed.Key), "v0", 2)
	if port, by, _ := testbed.Counted(t, inst, "v0"); !port.Attached || by[scionbed.Forwarded] != 5 {
		t.Errorf("v0 with its new device: attached %v, %v", port.Attached, by)
	}
}
