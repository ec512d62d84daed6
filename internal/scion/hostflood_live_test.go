// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/vishvananda/netlink"

	"culvert/internal/datapath"
	"culvert/internal/host/nexthop"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane"
)

// floodNet is a namespace with the real programs and a table of hosts, and its peer with live hosts.
type floodNet struct {
	*twoHosts
	plane    scionplane.Plane
	hosts    *hostTable
	resolver *nexthop.Resolver
}

var (
	floodLocal, floodRemote = netip.MustParseAddrPort("192.0.2.1:50000"), netip.MustParseAddrPort("192.0.2.2:50000")
	floodIA                 = addr.MustParseIA("1-ff00:0:110")
)

func newFloodNet(t *testing.T, limit int) *floodNet {
	f := &floodNet{twoHosts: newTwoHosts(t)}
	for i, prefixes := range [][]string{{"10.9.0.1/16"}, {"10.9.0.2/16", "10.9.0.3/16"}} {
		for _, prefix := range prefixes {
			a, err := netlink.ParseAddr(prefix)
			check(t, err)
			check(t, f.links[i].AddrAdd(f.veth(i), a))
		}
	}
	inside := netip.MustParseAddrPort("10.9.0.1:30042")
	inst, err := datapath.Attach(datapath.Options{Name: "flood", Interfaces: []string{"cvs0"}, Temporary: true, Parts: []datapath.Part{scionplane.NewPart(scionplane.Config{
		LocalIA: uint64(floodIA),
		Links: []scionplane.Link{{Name: "internal", Local: inside}, {
			Name: "1", Scope: scionplane.ScopeExternal, IfID: 1, NeighborIA: uint64(floodIA) + 1, Local: floodLocal, Remote: floodRemote}},
		Interfaces: []scionplane.Interface{{ID: 1, Link: 1, Type: scionplane.LinkCore}},
		PortStart:  1, PortEnd: 65535,
	})}})
	check(t, err)
	f.plane = scionplane.Of(inst)
	ctx, stop := context.WithCancel(context.Background())
	o := resolverOptions(false)
	o.OnError = func(err error) { t.Error(err) }
	f.resolver, err = nexthop.New(ctx, o)
	check(t, err)
	index := f.veth(0).Attrs().Index
	f.hosts = newHostTable(inside.Addr(), resolverTracker{f.resolver}, plane{f.plane}, func(i int) bool { return i == index })
	f.hosts.limit = limit
	check(t, f.plane.AddKey(0, scionplane.Key{1}))
	done := make(chan error, 1)
	go func() { done <- f.plane.WantedHosts(ctx, func(a netip.Addr) { f.hosts.want(a, time.Now()) }) }()
	t.Cleanup(func() {
		stop()
		f.resolver.Wait()
		if err := <-done; err != nil {
			t.Error(err)
		}
		f.plane.Close()
	})
	return f
}

// frame returns a packet from the neighbor AS to a host of this AS.
func (f *floodNet) frame(host netip.Addr) []byte {
	own := scionpkt.Hop{ConsIngress: 1, ExpTime: 63, Own: true}
	s := scionpkt.Spec{
		Outer:    scionpkt.Outer{DstMAC: [6]byte(f.veth(0).Attrs().HardwareAddr), Src: floodRemote, Dst: floodLocal},
		External: true,
		Key:      scionplane.Key{1},
		SrcIA:    floodIA + 1,
		DstIA:    floodIA,
		SrcHost:  addr.MustParseHost("198.51.100.1"),
		DstHost:  addr.HostIP(host),
		Segments: []scionpkt.Segment{{ConsDir: true, Timestamp: uint32(time.Now().Add(-time.Minute).Unix()),
			Hops: []scionpkt.Hop{{ConsEgress: 5, ExpTime: 63}, own}}},
		CurrHF:  1,
		Payload: scionpkt.Payload{Size: 64, SrcPort: 1000, DstPort: 2000, HopByHop: -1, EndToEnd: -1},
	}
	frame, err := s.Build()
	check(f.t, err)
	return frame
}

// forwarded tells whether the programs forward a frame.
func (f *floodNet) forwarded(frame []byte) bool {
	f.t.Helper()
	action, _, err := f.plane.TestRun(frame, "cvs0")
	check(f.t, err)
	return action == 4 // XDP_REDIRECT
}

// at writes a destination host into a frame.
func at(frame []byte, host netip.Addr) []byte {
	copy(frame[scionpkt.EthernetLen+scionpkt.IPv4Len+scionpkt.UDPLen+12+16:], host.AsSlice())
	return frame
}

// TestFloodBehindAGatewayLive has a neighbor AS name ten times as many addresses behind an inner router as the table
// holds, and keep sending to them. An idle host on the link stays in the fast path all the time, and another one enters.
func TestFloodBehindAGatewayLive(t *testing.T) {
	const limit = 320
	f := newFloodNet(t, limit)
	_, inner, _ := net.ParseCIDR("10.64.0.0/10")
	check(t, f.links[0].RouteAdd(&netlink.Route{Dst: inner, Gw: net.IP{10, 9, 0, 3}}))
	quiet, newcomer := f.frame(netip.MustParseAddr("10.9.0.2")), f.frame(netip.MustParseAddr("10.9.0.3"))
	template := f.frame(netip.MustParseAddr("10.64.0.0"))
	arrives := func(who string, frame []byte, meanwhile func()) {
		for end := time.Now().Add(patience); !f.forwarded(frame); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s never gets into the fast path", who)
			}
			meanwhile()
		}
	}
	arrives("the first host", quiet, func() {})
	n, forwarded := 0, 0
	flood := func() {
		for range 2 * limit {
			n++
			nobody := netip.AddrFrom4([4]byte{10, 64, byte(n>>8) % 16, byte(n)})
			f.hosts.want(nobody, time.Now())
			if f.forwarded(at(template, nobody)) {
				forwarded++
			}
		}
	}
	for n < 20*limit {
		flood()
		time.Sleep(10 * time.Millisecond)
	}
	arrives("a new host on the link", newcomer, flood)
	if forwarded == 0 {
		t.Error("no address behind the router entered the fast path: the test shows nothing")
	}
	if !f.forwarded(quiet) {
		t.Error("the host on the link was evicted for addresses behind a router")
	}
}

// TestFloodOfHostsLive has a neighbor AS send to two thousand addresses a second that no host has. A host in use stays in
// the fast path all the time, another one enters, the far end of a link is found and followed, and the kernel's neighbor
// table stays small.
func TestFloodOfHostsLive(t *testing.T) {
	const limit, most = 300, 4000
	f := newFloodNet(t, limit)
	live, newcomer := f.frame(netip.MustParseAddr("10.9.0.2")), f.frame(netip.MustParseAddr("10.9.0.3"))
	template := f.frame(netip.MustParseAddr("10.9.255.255"))
	for end := time.Now().Add(patience); !f.forwarded(live); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the first host never gets into the fast path")
		}
	}
	moved := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	first := [6]byte(f.veth(1).Attrs().HardwareAddr)
	macs := make(chan [6]byte, 100)
	var seen [6]byte
	came, tracked, changed := false, false, false
	lost := 0
	end := time.Now().Add(10 * patience) // each of the many pauses is longer on a busy machine
	for n := 0; n < most || !came || seen != [6]byte(moved); n++ {
		if time.Now().After(end) {
			t.Fatalf("after %d addresses: second host in the fast path %v, link at %x", n, came, seen)
		}
		nobody := netip.AddrFrom4([4]byte{10, 9, 16 + byte(n>>8)%128, byte(n)})
		// Asking directly bypasses the programs' limits, so that the table alone has to cope.
		f.hosts.want(nobody, time.Now())
		if f.forwarded(at(template, nobody)) {
			t.Fatalf("packet to %s, which no host has, was forwarded", nobody)
		}
		if !changed && !f.forwarded(live) { // later the kernel finds that the host has left its address, too
			lost++
		}
		if n > most/4 && f.forwarded(newcomer) {
			came = true
		}
		if n > most/2 && !tracked {
			tracked = true
			f.resolver.Track(floodRemote.Addr(), floodLocal.Addr(), func(nh nexthop.NextHop) { macs <- nh.DstMAC })
		}
		select {
		case seen = <-macs:
		default:
		}
		if seen == first && !changed {
			changed = true
			check(t, f.links[1].LinkSetHardwareAddr(f.veth(1), moved))
			// Deleting the entry has the effect of a gratuitous ARP.
			check(t, f.links[0].NeighDel(&netlink.Neigh{LinkIndex: f.veth(0).Attrs().Index, IP: floodRemote.Addr().AsSlice()}))
		}
		if n%256 == 255 {
			entries, err := f.links[0].NeighList(f.veth(0).Attrs().Index, netlink.FAMILY_V4)
			check(t, err)
			if len(entries) > 2*maxUnresolved {
				t.Fatalf("after %d addresses the kernel has %d neighbors", n, len(entries))
			}
		}
		time.Sleep(500 * time.Microsecond)
	}
	if lost > 0 {
		t.Errorf("%d packets to a host in use left the fast path", lost)
	}
}
