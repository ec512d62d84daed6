// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/scionproto/scion/pkg/addr"
)

// distortion makes a change to a packet that Mutate cannot make, because it needs new MACs or knowledge
// of the network.
type distortion struct {
	name  string
	apply func(*rand.Rand, *Network, *Spec)
}

var distortions = []distortion{
	{"expired hop, right MAC", expireHop},
	{"other egress, right MAC", otherEgress},
	{"other ingress, right MAC", otherIngress},
	{"arrives on another link", otherLink},
	{"unknown interface, right MAC", unknownInterface},
	{"source AS", otherSource},
	{"destination AS", otherDestination},
	{"destination host", otherHost},
	{"MAC of another key", func(rng *rand.Rand, _ *Network, s *Spec) {
		s.Key[rng.IntN(16)] ^= 1 << rng.IntN(8)
	}},
	{"SegID of the wrong step", func(_ *rand.Rand, _ *Network, s *Spec) {
		s.External = !s.External
	}},
	{"construction direction, right MAC", func(rng *rand.Rand, _ *Network, s *Spec) {
		i := rng.IntN(len(s.Segments))
		s.Segments[i].ConsDir = !s.Segments[i].ConsDir
	}},
	{"peering flag, right MAC", func(rng *rand.Rand, _ *Network, s *Spec) {
		i := rng.IntN(len(s.Segments))
		s.Segments[i].Peer = !s.Segments[i].Peer
	}},
	{"router alert, right MAC", routerAlert},
	{"underlay source", otherUnderlaySource},
	{"another hop is current", otherCurrent},
	{"second hop field forged", forgeSecond},
	{"hop removed", removeHop},
}

// Distort makes one random change to a packet, and returns the new packet and the name of the change. Most
// such packets must not be forwarded, but some must. The judge decides, and MustForward is false.
func Distort(rng *rand.Rand, n *Network, s Spec) (Spec, string) {
	s.Segments = slices.Clone(s.Segments)
	for i := range s.Segments {
		s.Segments[i].Hops = slices.Clone(s.Segments[i].Hops)
	}
	s.MustForward = false
	d := distortions[rng.IntN(len(distortions))]
	d.apply(rng, n, &s)
	return s, d.name
}

// ownHops returns the hops whose MACs the router under test checks.
func (s *Spec) ownHops() []*Hop {
	var own []*Hop
	for i := range s.Segments {
		for k := range s.Segments[i].Hops {
			if h := &s.Segments[i].Hops[k]; h.Own {
				own = append(own, h)
			}
		}
	}
	return own
}

// expireHop sets lifetimes so that an own hop has expired at least 100 s ago.
func expireHop(rng *rand.Rand, n *Network, s *Spec) {
	for i := range s.Segments {
		seg := &s.Segments[i]
		k := slices.IndexFunc(seg.Hops, func(h Hop) bool { return h.Own })
		if k < 0 || i+1 < len(s.Segments) && len(s.ownHops()) > 1 && rng.IntN(2) == 0 {
			continue
		}
		units := (n.Now - seg.Timestamp) * 2 / halfUnit
		if units == 0 {
			seg.Timestamp -= halfUnit
			units = 2
		}
		seg.Hops[k].ExpTime = uint8(rng.IntN(int(units)))
	}
}

// interfaceField returns the field of the hop with the interface by which the packet leaves or enters.
func interfaceField(s *Spec, h *Hop, egress bool) *uint16 {
	for i := range s.Segments {
		for k := range s.Segments[i].Hops {
			if &s.Segments[i].Hops[k] == h && s.Segments[i].ConsDir == egress {
				return &h.ConsEgress
			}
		}
	}
	return &h.ConsIngress
}

func otherEgress(rng *rand.Rand, n *Network, s *Spec) {
	own := s.ownHops()
	*interfaceField(s, own[len(own)-1], true) = n.Interfaces[rng.IntN(len(n.Interfaces))].ID
}

// otherIngress replaces the ingress interface by another one, by whose link the packet then arrives.
func otherIngress(rng *rand.Rand, n *Network, s *Spec) {
	intf := &n.Interfaces[rng.IntN(len(n.Interfaces))]
	*interfaceField(s, s.ownHops()[0], false) = intf.ID
	randomOuter(rng, n, s, intf)
}

func otherLink(rng *rand.Rand, n *Network, s *Spec) {
	intf := &n.Interfaces[rng.IntN(len(n.Interfaces))]
	if rng.IntN(4) == 0 {
		intf, s.Link = nil, 0
	}
	randomOuter(rng, n, s, intf)
}

func unknownInterface(rng *rand.Rand, n *Network, s *Spec) {
	own := s.ownHops()
	id := []uint16{0, uint16(rng.Uint32()), n.Interfaces[0].ID + 1}[rng.IntN(3)]
	*interfaceField(s, own[rng.IntN(len(own))], rng.IntN(2) == 0) = id
}

func (n *Network) otherIA(rng *rand.Rand, ia addr.IA) addr.IA {
	switch rng.IntN(4) {
	case 0:
		return ia ^ 1<<rng.IntN(64)
	case 1:
		return 0
	case 2:
		return n.foreignIA(rng.Uint64N(1000))
	default:
		return n.IA
	}
}

func otherSource(rng *rand.Rand, n *Network, s *Spec) { s.SrcIA = n.otherIA(rng, s.SrcIA) }

func otherDestination(rng *rand.Rand, n *Network, s *Spec) { s.DstIA = n.otherIA(rng, s.DstIA) }

func otherHost(rng *rand.Rand, n *Network, s *Spec) {
	hosts := []addr.Host{
		addr.HostIP(netip.IPv4Unspecified()), addr.HostIP(netip.IPv6Unspecified()),
		addr.HostIP(netip.AddrFrom4([4]byte{224, 0, 0, 1})),
		addr.HostIP(netip.AddrFrom4([4]byte{255, 255, 255, 255})),
		addr.HostIP(netip.AddrFrom4([4]byte{127, 0, 0, 1})), addr.HostIP(netip.IPv6Loopback()),
		addr.HostIP(netip.AddrFrom4([4]byte{10, 0, 0, 77})),
		addr.HostIP(n.Links[0].Local.Addr()), addr.HostSVC(addr.SvcWildcard),
		addr.HostSVC(addr.SvcNone), randomHost(rng),
	}
	s.DstHost = hosts[rng.IntN(len(hosts))]
}

func routerAlert(rng *rand.Rand, _ *Network, s *Spec) {
	own := s.ownHops()
	h := own[rng.IntN(len(own))]
	h.IngressAlert = rng.IntN(2) == 0
	h.EgressAlert = !h.IngressAlert || rng.IntN(2) == 0
	if rng.IntN(2) == 0 {
		s.Payload.Kind = TracerouteRequest
	}
}

func otherUnderlaySource(rng *rand.Rand, n *Network, s *Spec) {
	src := s.Outer.Src
	a, port := src.Addr(), src.Port()
	switch rng.IntN(5) {
	case 0:
		port += uint16(1 + rng.IntN(3))
	case 1:
		a = a.Next()
	case 2:
		a = n.Links[rng.IntN(len(n.Links))].Local.Addr()
	case 3:
		if r := n.Links[rng.IntN(len(n.Links))].Remote; r.IsValid() {
			a, port = r.Addr(), r.Port()
		}
	default:
		special := []netip.Addr{
			netip.IPv4Unspecified(), netip.AddrFrom4([4]byte{127, 0, 0, 1}),
			netip.AddrFrom4([4]byte{224, 0, 0, 9}), netip.AddrFrom4([4]byte{255, 255, 255, 255}),
			netip.IPv6Loopback(), netip.IPv6LinkLocalAllNodes(),
		}
		a = special[rng.IntN(len(special))]
	}
	if a.Is4() == src.Addr().Is4() {
		s.Outer.Src = netip.AddrPortFrom(a, port)
	}
}

// otherCurrent makes the next or the previous hop the current one, with a right MAC.
func otherCurrent(rng *rand.Rand, _ *Network, s *Spec) {
	step := uint8(1)
	if rng.IntN(2) == 0 {
		step = 0xff
	}
	s.CurrHF += step
	hf := 0
	for i := range s.Segments {
		for k := range s.Segments[i].Hops {
			if hf == int(s.CurrHF) {
				s.CurrINF = uint8(i)
				s.Segments[i].Hops[k].Own = true
				return
			}
			hf++
		}
	}
	s.CurrHF -= step
}

// forgeSecond replaces the MAC of the last own hop: the second one at a change of segments, else the only one.
func forgeSecond(rng *rand.Rand, _ *Network, s *Spec) {
	own := s.ownHops()
	h := own[len(own)-1]
	h.Own = false
	for i := range h.MAC {
		h.MAC[i] = byte(rng.Uint32())
	}
}

// removeHop removes the foreign hops at the end of a segment, down to a single hop.
func removeHop(rng *rand.Rand, _ *Network, s *Spec) {
	i := rng.IntN(len(s.Segments))
	hops := s.Segments[i].Hops
	for len(hops) > 1 && !hops[len(hops)-1].Own {
		hops = hops[:len(hops)-1]
	}
	s.Segments[i].Hops = hops
	hf := 0
	for k := range s.Segments {
		for _, h := range s.Segments[k].Hops {
			if h.Own {
				s.CurrINF, s.CurrHF = uint8(k), uint8(hf)
				return
			}
			hf++
		}
	}
}
