// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"culvert/internal/datapath"
	"culvert/internal/testbed"
)

// gate is a part with a program in front of the pipeline that counts packets. Its state has the index of an interface.
type gate struct {
	t    *testing.T
	name string
}

// gateState is Front.State of a gate.
type gateState struct {
	Iface string
	Index int
	Open  bool // a state without a program
}

func (g gate) Name() string                                   { return g.name }
func (gate) Check() error                                     { return nil }
func (gate) State(*datapath.Instance) (datapath.State, error) { return datapath.State{}, nil }
func (gate) Load(*datapath.Loading) error                     { return nil }
func (gate) Shared(*datapath.Loading) []string                { return nil }
func (gate) Fill(*datapath.Loading, *datapath.Instance) error { return nil }
func (g gate) NeedsRebuild(f *datapath.Front, iface string) (bool, error) {
	return g.state(f).Iface == iface, nil
}
func (g gate) state(f *datapath.Front) (s gateState) {
	g.must(json.Unmarshal(trim(f.State), &s))
	return s
}
func trim(b []byte) []byte { return []byte(strings.TrimRight(string(b), "\x00")) }
func (g gate) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g gate) Rebuild(old *datapath.Front, on datapath.Behind) (*datapath.Front, error) {
	if old.State == nil {
		return &datapath.Front{}, nil
	}
	s := g.state(old)
	if now, ok := renamed(on.Renamed, s.Iface); ok {
		s.Iface = now
	}
	return g.make(old, s, on), nil
}

func renamed(before map[string]string, name string) (string, bool) {
	for now, old := range before {
		if old == name {
			return now, true
		}
	}
	return "", false
}

// make returns a Front for a state. Its counter goes on from that of old.
func (g gate) make(old *datapath.Front, s gateState, on datapath.Behind) *datapath.Front {
	s.Index, _ = on.Index(s.Iface)
	f := &datapath.Front{Maps: make(map[string]*ebpf.Map)}
	var err error
	f.State, err = json.Marshal(s)
	g.must(err)
	if m := old.Maps["passed"]; m != nil {
		f.Maps["passed"], err = m.Clone()
	} else {
		f.Maps["passed"], err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	}
	g.must(err)
	if !s.Open {
		f.Prog, f.TailCall = testbed.FrontProgram(g.t, f.Maps["passed"])
	}
	return f
}

// set replaces what the gate has in front of the pipeline. With s nil it has nothing there afterwards.
func (g gate) set(inst *datapath.Instance, s *gateState) {
	g.t.Helper()
	settled := 0
	g.must(inst.EditFront(g.name, func(old *datapath.Front, on datapath.Behind) (*datapath.Front, func(bool), error) {
		settle := func(inForce bool) {
			settled++
			if !inForce {
				g.t.Error("the change was given up")
			}
		}
		if s == nil {
			return &datapath.Front{}, settle, nil
		}
		return g.make(old, *s, on), settle, nil
	}))
	if settled != 1 {
		g.t.Errorf("settled %d times", settled)
	}
}

// passed returns how many packets the gate has counted, -1 if it has nothing in front of the pipeline.
func (g gate) passed(inst *datapath.Instance) (n int64) {
	g.t.Helper()
	f, done, err := inst.Front(g.name)
	g.must(err)
	defer done()
	if f.Maps["passed"] == nil {
		return -1
	}
	g.must(f.Maps["passed"].Lookup(uint32(0), &n))
	return n
}

// fronts is a data plane on v0 and v2 with two gates: packets meet a, then b, then the pipeline.
type fronts struct {
	t     *testing.T
	a, b  gate
	inst  *datapath.Instance
	frame []byte
}

func newFronts(t *testing.T, temporary bool) *fronts {
	t.Helper()
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	testbed.AddVeth(t, "v2", "v3")
	f := &fronts{t: t, a: gate{t, "second-in-the-alphabet"}, b: gate{t, "first-in-the-alphabet"}, frame: make([]byte, 60)}
	f.attach(temporary, "v0", "v2")
	return f
}

func (f *fronts) parts() []datapath.Part { return []datapath.Part{f.a, f.b} }

func (f *fronts) attach(temporary bool, interfaces ...string) {
	f.t.Helper()
	inst, err := datapath.Attach(datapath.Options{Name: "f", Interfaces: interfaces, Temporary: temporary, Parts: f.parts()})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(inst.Close)
	f.inst = inst
}

// expect runs a packet, which the pipeline has to count, and compares the counters of the gates with a and b.
func (f *fronts) expect(when string, a, b int64) {
	f.t.Helper()
	_, _, before := testbed.Counted(f.t, f.inst, "v0")
	if action, _, err := f.inst.TestRun(f.frame, "v0"); err != nil || action != testbed.XDPPass {
		f.t.Errorf("%s: action %d, %v", when, action, err)
	}
	_, _, after := testbed.Counted(f.t, f.inst, "v0")
	if gotA, gotB := f.a.passed(f.inst), f.b.passed(f.inst); gotA != a || gotB != b || after != before+1 {
		f.t.Errorf("%s: %d and %d have passed, want %d and %d, and %d were received", when, gotA, gotB, a, b, after-before)
	}
	if testbed.XDPProgram(f.t, "v0") != testbed.XDPProgram(f.t, "v2") {
		f.t.Errorf("%s: the interfaces carry different programs", when)
	}
}

// TestFronts adds, replaces and removes the programs of two parts. A change of one leaves the other alone.
func TestFronts(t *testing.T) {
	for _, temporary := range []bool{true, false} {
		t.Run(fmt.Sprintf("temporary %v", temporary), func(t *testing.T) {
			f := newFronts(t, temporary)
			plain := testbed.XDPProgram(t, "v0")
			f.expect("without programs in front", -1, -1)
			f.b.set(f.inst, &gateState{})
			f.expect("b added", -1, 1)
			f.a.set(f.inst, &gateState{})
			f.expect("a added", 1, 2)
			first := testbed.XDPProgram(t, "v0")
			f.b.set(f.inst, &gateState{Iface: "v2"})
			f.expect("b replaced", 2, 3)
			if now := testbed.XDPProgram(t, "v0"); now != first {
				t.Errorf("v0 carries program %d, not %d: the one in front was touched", now, first)
			}
			f.b.set(f.inst, &gateState{Open: true})
			f.expect("b without a program", 3, 3)
			f.b.set(f.inst, &gateState{})
			f.expect("b with a program again", 4, 4)
			f.a.set(f.inst, &gateState{})
			f.expect("a replaced", 5, 5)
			f.a.set(f.inst, nil)
			f.expect("a removed", -1, 6)
			f.b.set(f.inst, nil)
			f.expect("b removed", -1, -1)
			if now := testbed.XDPProgram(t, "v0"); now != plain {
				t.Errorf("v0 carries program %d, not %d", now, plain)
			}
			if !temporary && strings.Contains(testbed.Tree(t), "alphabet") {
				t.Errorf("pins are left:\n%s", testbed.Tree(t))
			}
		})
	}
}

// TestFrontsAdopted rebuilds the programs in front of a new generation. Attach fails if a part is missing that has one.
func TestFrontsAdopted(t *testing.T) {
	f := newFronts(t, false)
	f.a.set(f.inst, &gateState{Iface: "v0"})
	f.b.set(f.inst, &gateState{Iface: "v2"})
	f.expect("both", 1, 1)
	f.inst.Close()

	before, was := testbed.Tree(t), testbed.XDPProgram(t, "v0")
	_, err := datapath.Attach(datapath.Options{Name: "f", Interfaces: []string{"v0", "v2"}, Parts: []datapath.Part{f.a}})
	if err == nil || !strings.Contains(err.Error(), f.b.name) {
		t.Errorf("attached without one of them: %v", err)
	}
	if testbed.Tree(t) != before || testbed.XDPProgram(t, "v0") != was {
		t.Errorf("pins are now\n%sand were\n%s", testbed.Tree(t), before)
	}

	testbed.Rename(t, "v2", "w2")
	f.attach(false, "v0", "w2")
	if !f.inst.Adopted() || testbed.XDPProgram(t, "v0") == was {
		t.Error("not adopted")
	}
	testbed.Rename(t, "w2", "v2")
	f.expect("adopted", 2, 2)
	if s := f.stateOf(f.b); s.Iface != "w2" || s.Index != testbed.Device(t, "v2").Index {
		t.Errorf("it is for %+v", s)
	}
	all, err := datapath.ListHere()
	if err != nil || len(all) != 1 {
		t.Fatalf("%d instances, %v", len(all), err)
	}
	defer all[0].Close()
	f.a.set(all[0], nil)
	f.expect("a removed by another process", -1, 3)
	f.b.set(all[0], nil)
	f.expect("b removed by another process", -1, -1)
}

func (f *fronts) stateOf(g gate) gateState {
	f.t.Helper()
	front, done, err := f.inst.Front(g.name)
	g.must(err)
	defer done()
	return g.state(front)
}

// TestFrontsRestored restores a removed data plane with the programs in front, also on an interface that was made again.
func TestFrontsRestored(t *testing.T) {
	f := newFronts(t, false)
	f.a.set(f.inst, &gateState{Iface: "v0"})
	f.b.set(f.inst, &gateState{})
	f.expect("both", 1, 1)
	for range 2 { // nothing has changed before the second call
		if err := f.inst.KeepFronts(); err != nil {
			t.Fatal(err)
		}
	}
	index := testbed.Device(t, "v0").Index
	all, err := datapath.ListHere()
	if err != nil || len(all) != 1 {
		t.Fatalf("%d instances, %v", len(all), err)
	}
	if err := all[0].DetachAll(); err != nil {
		t.Fatal(err)
	}
	all[0].Close()
	if !f.inst.Removed() || testbed.XDPProgram(t, "v0") != 0 {
		t.Fatal("not removed")
	}
	testbed.DeleteDevice(t, "v0")
	testbed.AddVeth(t, "v0", "v1")
	if kept, err := f.inst.Restore(); err != nil || !kept {
		t.Fatal(kept, err)
	}
	for _, u := range f.inst.Unattached() {
		if err := f.inst.AttachPort(u); err != nil {
			t.Fatal(err)
		}
	}
	if on := f.inst.Attached(); !slices.Equal(on, []string{"v0", "v2"}) {
		t.Errorf("attached to %v", on)
	}
	f.expect("restored", 2, 2)
	if s := f.stateOf(f.a); s.Index == index || s.Index != testbed.Device(t, "v0").Index {
		t.Errorf("it is for %+v, and v0 was %d and is %d", s, index, testbed.Device(t, "v0").Index)
	}
}
