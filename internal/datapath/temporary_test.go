// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"slices"
	"testing"

	"culvert/internal/datapath"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// TestTemporary: a temporary instance works like any other, but it is not listed, pins nothing and ends with Close.
func TestTemporary(t *testing.T) {
	testbed.InNamespace(t)
	v0 := testbed.AddVeth(t, "v0", "v1")
	v2 := testbed.AddVeth(t, "v2", "v3")
	o := datapath.Options{Name: "br1", Interfaces: []string{"v0", "v2"}, Temporary: true}
	testbed.AttachForeign(t, "v3")
	o.Interfaces[1] = "v3"
	o.Parts = scionbed.Parts(scionbed.Config(1))
	if _, err := datapath.Attach(o); err == nil || testbed.XDPProgram(t, "v0") != 0 {
		t.Errorf("beside a foreign program: error %v, program %d", err, testbed.XDPProgram(t, "v0"))
	}
	o.Interfaces[1] = "v2"
	o.Parts = scionbed.Parts(scionbed.Config(1, 2))
	loaded, err := datapath.Attach(o)
	if err != nil {
		t.Fatal(err)
	}
	inst := scionplane.Of(loaded)
	defer inst.Close()
	if err := inst.AddKey(0, scionbed.Key); err != nil {
		t.Fatal(err)
	}
	scionbed.Open(t, inst, v2)
	testbed.Feed(t, inst, scionbed.TransitFrame(t, v0, scionbed.Key), "v0", 3)
	if port, by, _ := testbed.Counted(t, inst, "v0"); by[scionbed.Forwarded] != 3 || !port.Attached {
		t.Errorf("counters %v, attached %v", by, port.Attached)
	}
	if got := inst.Attached(); !slices.Equal(got, []string{"v0", "v2"}) {
		t.Errorf("attached to %v", got)
	}
	if all, err := datapath.ListHere(); err != nil || len(all) != 0 {
		t.Errorf("%d instances are listed, error %v", len(all), err)
	}
	if left := testbed.Tree(t); left != "" {
		t.Errorf("pins %s", left)
	}
	if err := inst.Pause(); err != nil || testbed.XDPProgram(t, "v0") != 0 || len(inst.Attached()) != 0 {
		t.Errorf("paused: error %v, program %d, attached %v", err, testbed.XDPProgram(t, "v0"), inst.Attached())
	}
	for range 2 {
		if err := inst.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	testbed.Feed(t, inst, scionbed.TransitFrame(t, v0, scionbed.Key), "v0", 2)
	if port, by, _ := testbed.Counted(t, inst, "v0"); by[scionbed.Forwarded] != 5 || !port.Attached {
		t.Errorf("after a pause: counters %v, attached %v", by, port.Attached)
	}
	inst.Close()
	if testbed.XDPProgram(t, "v0") != 0 || testbed.XDPProgram(t, "v2") != 0 || len(inst.Attached()) != 0 {
		t.Errorf("after closing: programs %d and %d, attached %v", testbed.XDPProgram(t, "v0"), testbed.XDPProgram(t, "v2"), inst.Attached())
	}
}
