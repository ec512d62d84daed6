// SPDX-License-Identifier: Apache-2.0

package scionplane_test

import (
	"net/netip"
	"testing"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// fates are the verdicts and reasons of the same valid datagram of a link by each of two interfaces.
type fates struct{ a0, b0 string }

// fed puts a datagram of a link through the program on both interfaces.
func fed(t *testing.T, inst scionplane.Plane, changes ...func(*scionpkt.Spec)) (got fates) {
	t.Helper()
	for name, fate := range map[string]*string{"a0": &got.a0, "b0": &got.b0} {
		frame := scionbed.SizedTransitFrame(t, testbed.Device(t, name), scionbed.Key, 64, changes...)
		_, before, _ := testbed.Counted(t, inst, name)
		testbed.Feed(t, inst, frame, name, 1)
		_, after, _ := testbed.Counted(t, inst, name)
		for reason, n := range after {
			if n != before[reason] {
				*fate += reason
			}
		}
	}
	return got
}

const (
	wrongInterface = "drop scion-interface"
	forwarded      = scionbed.Forwarded
)

// TestLinkAccept checks that a valid datagram of a link is forwarded by the interfaces of its rule, whether the link's
// next hop is by that interface or not, and dropped by any other.
func TestLinkAccept(t *testing.T) {
	testbed.InNamespace(t)
	a, b := testbed.AddVeth(t, "a0", "a1"), testbed.AddVeth(t, "b0", "b1")
	testbed.AddVeth(t, "c0", "c1")
	c := scionbed.Config(1, 2)
	inst := scionbed.Attach(t, c, "a0", "b0")
	scionbed.Open(t, inst, b)
	link := scionbed.LinkIndex(t, c, "1")
	lead := func(index int) {
		t.Helper()
		hop := scionplane.NextHop{IfIndex: index, SrcMAC: [6]byte(a.HardwareAddr), DstMAC: [6]byte{2, 0, 0, 0, 0, 8}, MTU: 1500}
		if err := inst.SetLinkNextHop(link, hop); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		rule scionplane.Accept
		want fates
	}{
		{"loose", nil, scionplane.Accept{Except: true}, fates{forwarded, forwarded}},
		{"by a0", nil, scionplane.Accept{Devices: []int{a.Index}}, fates{forwarded, wrongInterface}},
		{"by a0, its next hop there", func() { lead(a.Index) }, scionplane.Accept{Devices: []int{a.Index}}, fates{forwarded, wrongInterface}},
		{"route moved to b0", func() { lead(b.Index) }, scionplane.Accept{Devices: []int{b.Index}}, fates{wrongInterface, forwarded}},
		{"two next hops", nil, scionplane.Accept{Devices: []int{a.Index, b.Index}}, fates{forwarded, forwarded}},
		{"neighbor gone", func() { lead(0) }, scionplane.Accept{Devices: []int{b.Index}}, fates{wrongInterface, forwarded}},
		{"by an interface without the program", nil, scionplane.Accept{Devices: []int{testbed.Device(t, "c0").Index}}, fates{wrongInterface, wrongInterface}},
		{"no route", nil, scionplane.Accept{}, fates{wrongInterface, wrongInterface}},
		{"by all but a0", nil, scionplane.Accept{Except: true, Devices: []int{a.Index}}, fates{wrongInterface, forwarded}},
	} {
		if step.do != nil {
			step.do()
		}
		if err := inst.SetLinkAccept(link, step.rule); err != nil {
			t.Fatal(err)
		}
		if got := fed(t, inst); got != step.want {
			t.Errorf("%s: %+v, want %+v", step.name, got, step.want)
		}
	}
}

// TestInternalAccept checks that the rule of the internal link applies to datagrams for the internal address and port and
// to no others.
func TestInternalAccept(t *testing.T) {
	testbed.InNamespace(t)
	a, b := testbed.AddVeth(t, "a0", "a1"), testbed.AddVeth(t, "b0", "b1")
	c := scionbed.Config(1, 2)
	inst := scionbed.Attach(t, c, "a0", "b0")
	scionbed.Open(t, inst, b)
	if err := inst.SetLinkAccept(0, scionplane.Accept{Except: true, Devices: []int{a.Index}}); err != nil {
		t.Fatal(err)
	}
	toInside := func(s *scionpkt.Spec) {
		s.Outer.Src, s.Outer.Dst = netip.MustParseAddrPort("10.0.0.77:31000"), c.Links[0].Local
	}
	got := fed(t, inst, toInside)
	if got.a0 != wrongInterface || got.b0 == wrongInterface || got.b0 == "pass other" {
		t.Errorf("for the internal address: %+v", got)
	}
	if got := fed(t, inst); got != (fates{forwarded, forwarded}) {
		t.Errorf("for link 1: %+v", got)
	}
	elsewhere := func(s *scionpkt.Spec) { toInside(s); s.Outer.Dst = netip.MustParseAddrPort("10.0.0.1:30043") }
	if got := fed(t, inst, elsewhere); got != (fates{"pass other", "pass other"}) {
		t.Errorf("for another port: %+v", got)
	}
}

// TestWrongInterfaceIsTheLinksDrop checks that datagrams by a wrong interface count as drops of the link with their
// addresses.
func TestWrongInterfaceIsTheLinksDrop(t *testing.T) {
	testbed.InNamespace(t)
	a := testbed.AddVeth(t, "a0", "a1")
	c := scionbed.Config(1, 2)
	inst := scionbed.Attach(t, c, "a0")
	link := scionbed.LinkIndex(t, c, "1")
	if err := inst.SetLinkAccept(link, scionplane.Accept{}); err != nil {
		t.Fatal(err)
	}
	testbed.Feed(t, inst, scionbed.TransitFrame(t, a, scionbed.Key), "a0", 5)
	links, err := inst.LinkCounters()
	if err != nil {
		t.Fatal(err)
	}
	var received, dropped uint64
	for class := range links[link].In {
		received += links[link].In[class].Packets
		dropped += links[link].Dropped[class]
	}
	if received != 5 || dropped != 5 {
		t.Errorf("link 1: received %d, dropped %d", received, dropped)
	}
}

// TestAcceptIsAdopted checks that a rule outlives the process, and stays with its link when the configuration changes.
func TestAcceptIsAdopted(t *testing.T) {
	testbed.InNamespace(t)
	a, b := testbed.AddVeth(t, "a0", "a1"), testbed.AddVeth(t, "b0", "b1")
	attach := func(c scionplane.Config, names ...string) scionplane.Plane {
		t.Helper()
		inst, err := datapath.Attach(datapath.Options{Name: scionbed.Name, Interfaces: names, Parts: scionbed.Parts(c)})
		if err != nil {
			t.Fatal(err)
		}
		return scionplane.Of(inst)
	}
	c := scionbed.Config(1, 2)
	inst := attach(c, "a0", "b0")
	scionbed.Open(t, inst, b)
	if err := inst.SetLinkAccept(scionbed.LinkIndex(t, c, "1"), scionplane.Accept{Devices: []int{a.Index}}); err != nil {
		t.Fatal(err)
	}
	inst.Close()
	want := fates{forwarded, wrongInterface}
	inst = attach(c, "a0", "b0")
	if got := fed(t, inst); got != want {
		t.Errorf("same configuration: %+v, want %+v", got, want)
	}
	inst.Close()
	more := scionbed.Config(1, 2)
	more.Links[1], more.Links[2] = more.Links[2], more.Links[1]
	more.Interfaces[0].Link, more.Interfaces[1].Link = 2, 1
	inst = attach(more, "a0", "b0")
	defer inst.Close()
	if got := fed(t, inst); got != want {
		t.Errorf("links in another order: %+v, want %+v", got, want)
	}
}

// TestRefreshFindsInterfaces sets a rule with an interface that gets the program later. Refresh applies it.
func TestRefreshFindsInterfaces(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "a0", "a1")
	b := testbed.AddVeth(t, "b0", "b1")
	c := scionbed.Config(1, 2)
	inst := scionbed.Attach(t, c, "a0", "b0")
	scionbed.Open(t, inst, b)
	var port bpfobj.PipelinePort
	if err := inst.Map(bpfobj.PipelineMapPorts).Lookup(uint32(b.Index), &port); err != nil {
		t.Fatal(err)
	}
	away := port
	away.Slot = 0
	if err := inst.Map(bpfobj.PipelineMapPorts).Put(uint32(b.Index), away); err != nil {
		t.Fatal(err)
	}
	if err := inst.SetLinkAccept(scionbed.LinkIndex(t, c, "1"), scionplane.Accept{Devices: []int{b.Index}}); err != nil {
		t.Fatal(err)
	}
	if err := inst.Map(bpfobj.PipelineMapPorts).Put(uint32(b.Index), port); err != nil {
		t.Fatal(err)
	}
	if err := inst.Refresh(); err != nil {
		t.Fatal(err)
	}
	if got, want := fed(t, inst), (fates{wrongInterface, forwarded}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
