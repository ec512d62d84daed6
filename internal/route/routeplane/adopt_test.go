// SPDX-License-Identifier: Apache-2.0

package routeplane

import (
	"net/netip"
	"testing"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// TestAdopted attaches again while no process has told of devices and routes anew. Packets go where the kernel says, and not through
// its stack.
func TestAdopted(t *testing.T) {
	b := newRouteBed(t, Options{})
	attach := func(o Options) {
		t.Helper()
		b.inst.Close()
		inst, err := datapath.Attach(datapath.Options{Name: "adopted", Interfaces: []string{"west", "east"}, Parts: []datapath.Part{NewPart(o)}})
		b.must(err)
		b.inst = inst
	}
	b.plane.Close()
	attach(Options{})
	t.Cleanup(func() {
		if err := b.inst.DetachAll(); err != nil {
			t.Error(err)
		}
		b.inst.Close()
	})
	in := b.packet("10.1.0.5", "192.0.2.9", 0, 64)
	b.expect(in, "pass route-off")
	plane, err := Open(b.inst)
	b.must(err)
	b.must(plane.SetOwn4([]netip.Addr{netip.MustParseAddr("10.1.0.1")}))
	b.must(plane.SetPolicy(Policy{Kernel6: true}))
	b.must(plane.SetCurrent(1<<62, 1<<62))
	for _, dev := range []int{b.west.Index, b.east.Index} {
		b.must(plane.SetDev(dev, Dev{Port: dev, MAC: [6]byte(b.west.HardwareAddr), Forward4: true, Forward6: true, Xmit: true}))
	}
	b.must(plane.SetDev(77, Dev{Port: b.west.Index, VLAN: 7, MAC: [6]byte(b.west.HardwareAddr), Forward4: true, Xmit: true}))
	plane.Close()
	for _, o := range []Options{{}, {NoMirror: true}, {Blocks4: 64}} {
		attach(o)
		if !b.inst.Adopted() {
			t.Fatal("not adopted")
		}
		b.expect(in, "fwd route-fib")
		b.expect(b.packet("10.1.0.1", "192.0.2.9", 0, 64), "pass route-kernel") // from an address of this host
		b.expect(b.packet("fd01::5", "2001:db8::9", 0, 64), "pass route-kernel")
		plane, err := Open(b.inst)
		b.must(err)
		devs, err := plane.Devs()
		b.must(err)
		if d := devs[77]; d.VLAN != 7 || !d.Forward4 || !d.Xmit {
			t.Errorf("the VLAN device is %+v", d)
		}
		if st, err := ReadState(b.inst); err != nil || st.Until4 != 0 || st.Until6 != 0 {
			t.Errorf("%v, the mirror without routes is believed until %v and %v", err, st.Until4, st.Until6)
		}
		plane.Close()
	}
}

// TestPortStays attaches an interface again before a process has noticed that it was detached. What the process has said of it stays, because
// the process does not say it again.
func TestPortStays(t *testing.T) {
	said := bpfobj.PipelineRouteDev{Index: 3, Flags: devForward4, Mac: [3]uint16{1, 2, 3}}
	p := NewPart(Options{})
	got, err := p.FillPort(nil, 3, bpfobj.PipelinePort{Slot: 1, Route: said})
	if err != nil || len(got) != 1 || got[0].Route != said {
		t.Errorf("%+v, %v", got, err)
	}
	p.former = map[int]bpfobj.PipelineRouteDev{3: said}
	for n, want := range []bpfobj.PipelineRouteDev{said, {Index: 3}} { // the former device is written once
		if got, err := p.FillPort(nil, 3, bpfobj.PipelinePort{Slot: 1}); err != nil || got[0].Route != want {
			t.Errorf("time %d: %+v, %v", n, got, err)
		}
	}
}
