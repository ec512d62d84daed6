// SPDX-License-Identifier: Apache-2.0

// Package scionbed is a SCION router for tests, with frames that it forwards. It is for the tests of the router and for
// those of the engine that need a program which forwards packets.
package scionbed

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/scionproto/scion/pkg/addr"

	"culvert/internal/datapath"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane"
	"culvert/internal/stats"
)

// Name is the name of the router's data plane.
const Name = "br1"

// Forwarded is the verdict and the reason of frames of TransitFrame that are forwarded.
const Forwarded = "fwd scion-br-transit"

var (
	// IA is the AS of the router.
	IA = addr.MustParseIA("1-ff00:0:110")
	// Key is the forwarding key that Open loads.
	Key = scionplane.Key{1, 2, 3}
)

// Config returns the configuration of a router with an internal link and external links with the given interface IDs.
func Config(ids ...uint16) scionplane.Config {
	c := scionplane.Config{
		LocalIA:   uint64(IA),
		Links:     []scionplane.Link{{Name: "internal", Local: netip.MustParseAddrPort("10.0.0.1:30042")}},
		PortStart: 31000,
		PortEnd:   32767,
	}
	for n, id := range ids {
		c.Links = append(c.Links, scionplane.Link{
			Name:       strconv.Itoa(int(id)),
			Scope:      scionplane.ScopeExternal,
			IfID:       id,
			NeighborIA: uint64(IA) + uint64(id),
			Local:      netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(id >> 8), byte(id), 1}), 50000),
			Remote:     netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(id >> 8), byte(id), 2}), 50000),
		})
		c.Interfaces = append(c.Interfaces, scionplane.Interface{ID: id, Link: n + 1, Type: scionplane.LinkCore})
	}
	return c
}

// Parts returns the parts of a data plane with such a router.
func Parts(c scionplane.Config) []datapath.Part { return []datapath.Part{scionplane.NewPart(c)} }

// Attach attaches a router for the length of the test.
func Attach(t testing.TB, c scionplane.Config, interfaces ...string) scionplane.Plane {
	t.Helper()
	inst, err := datapath.Attach(datapath.Options{Name: Name, Interfaces: interfaces, Parts: Parts(c)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inst.Close)
	return scionplane.Of(inst)
}

// LinkIndex returns the index of the link with a name.
func LinkIndex(t testing.TB, c scionplane.Config, name string) int {
	t.Helper()
	n := slices.IndexFunc(c.Links, func(l scionplane.Link) bool { return l.Name == name })
	if n < 0 {
		t.Fatalf("no link %s", name)
	}
	return n
}

// TransitFrame returns a frame that comes in by a device at interface 1. If its MAC is valid under key, it is forwarded to
// interface 2. The payload has 64 bytes.
func TransitFrame(t testing.TB, in *net.Interface, key scionplane.Key) []byte {
	t.Helper()
	return SizedTransitFrame(t, in, key, 64)
}

// SizedTransitFrame is TransitFrame with a payload of the given number of bytes, and with changes.
func SizedTransitFrame(t testing.TB, in *net.Interface, key scionplane.Key, size int, changes ...func(*scionpkt.Spec)) []byte {
	t.Helper()
	c := Config(1)
	hop := func(in, out uint16) scionpkt.Hop {
		return scionpkt.Hop{ConsIngress: in, ConsEgress: out, ExpTime: 63}
	}
	own := hop(1, 2)
	own.Own = true
	s := scionpkt.Spec{
		Outer:    scionpkt.Outer{DstMAC: [6]byte(in.HardwareAddr), Src: c.Links[1].Remote, Dst: c.Links[1].Local},
		External: true,
		Key:      key,
		SrcIA:    IA + 1,
		DstIA:    IA + 2,
		SrcHost:  addr.MustParseHost("192.0.2.1"),
		DstHost:  addr.MustParseHost("192.0.2.2"),
		Segments: []scionpkt.Segment{{
			ConsDir:   true,
			Timestamp: uint32(time.Now().Add(-time.Minute).Unix()),
			Beta:      7,
			Hops:      []scionpkt.Hop{hop(0, 5), own, hop(6, 0)},
		}},
		CurrHF:  1,
		Payload: scionpkt.Payload{Size: size, SrcPort: 1000, DstPort: 2000, HopByHop: -1, EndToEnd: -1},
	}
	for _, change := range changes {
		change(&s)
	}
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Open gives interface 2 a next hop by a device, sets it up and loads Key.
func Open(t testing.TB, router scionplane.Plane, out *net.Interface) {
	t.Helper()
	n := LinkIndex(t, router.Config(), "2")
	hop := scionplane.NextHop{IfIndex: out.Index, SrcMAC: [6]byte(out.HardwareAddr), DstMAC: [6]byte{2, 0, 0, 0, 0, 9}, MTU: 1500}
	if err := router.SetLinkNextHop(n, hop); err != nil {
		t.Fatal(err)
	}
	if err := router.SetLinkUp(n, true); err != nil {
		t.Fatal(err)
	}
	if err := router.AddKey(0, Key); err != nil {
		t.Fatal(err)
	}
}

// LinkTraffic returns the numbers of packets received and sent over each link by the link's name.
func LinkTraffic(t testing.TB, router scionplane.Plane) (in, out map[string]uint64) {
	t.Helper()
	counters, err := router.LinkCounters()
	if err != nil {
		t.Fatal(err)
	}
	links := router.Config().Links
	if len(counters) != len(links) {
		t.Fatalf("%d counters for %d links", len(counters), len(links))
	}
	in, out = make(map[string]uint64), make(map[string]uint64)
	for n, c := range counters {
		for class := range stats.SizeClasses {
			in[links[n].Name] += c.In[class].Packets
			for typ := range stats.TrafficTypes {
				out[links[n].Name] += c.Out[typ][class].Packets
			}
		}
	}
	return in, out
}
