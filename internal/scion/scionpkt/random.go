// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"math/rand/v2"
	"net/netip"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/private/topology"
)

// defaultMaxPacket is the size of the reference router's packet buffers: 9000 bytes less the 512 that it
// keeps free in front.
const defaultMaxPacket = 9000 - 512

// passage is the kind of step of a path from one interface of an AS to another.
type passage uint8

const (
	forbidden passage = iota
	// within stays in a segment.
	within
	// crossing changes to the next segment.
	crossing
	// overPeer enters or leaves by a peering link.
	overPeer
)

// passageOf returns the step that leads from one type of interface to another.
func passageOf(in, out topology.LinkType) passage {
	const core, parent, child, peer = topology.Core, topology.Parent, topology.Child, topology.Peer
	switch [2]topology.LinkType{in, out} {
	case [2]topology.LinkType{core, core}, [2]topology.LinkType{child, parent},
		[2]topology.LinkType{parent, child}:
		return within
	case [2]topology.LinkType{core, child}, [2]topology.LinkType{child, core},
		[2]topology.LinkType{child, child}:
		return crossing
	case [2]topology.LinkType{child, peer}, [2]topology.LinkType{peer, child}:
		return overPeer
	default:
		return forbidden
	}
}

// Random makes a packet that the network's router must forward. All directions that the network allows
// are equally likely. It panics if the router has no interface of its own.
func Random(rng *rand.Rand, n *Network) Spec {
	mine, _ := n.owned()
	if len(mine) == 0 {
		panic("scionpkt: Random needs a network with an interface of the router itself")
	}
	for {
		d := Direction(rng.IntN(int(NumDirections)))
		if s, ok := RandomIn(rng, n, d); ok {
			return s
		}
	}
}

// RandomIn makes a packet in the given direction. ok is false if the network has no interfaces for it.
func RandomIn(rng *rand.Rand, n *Network, d Direction) (s Spec, ok bool) {
	in, out, ok := pickInterfaces(rng, n, d)
	if !ok {
		return Spec{}, false
	}
	s = Spec{Direction: d, Key: n.Key}
	b := pathBuilder{rng: rng, net: n, spec: &s, in: in, out: out}
	b.build()
	s.TrafficClass = uint8(rng.Uint32())
	s.FlowID = rng.Uint32() & 0xfffff
	randomOuter(rng, n, &s, in)
	randomEnds(rng, n, &s)
	randomPayload(rng, n, &s)
	s.MustForward = inScope(n, &s, out)
	return s, true
}

// pickInterfaces picks the interfaces by which the packet enters and leaves the AS; nil is the inside.
func pickInterfaces(rng *rand.Rand, n *Network, d Direction) (in, out *Interface, ok bool) {
	mine, others := n.owned()
	ins, outs := mine, mine
	switch d {
	case ExternalToSibling:
		outs = others
	case SiblingToExternal:
		ins = others
	case InsideToExternal:
		ins = nil
	case ExternalToHost:
		outs = nil
	}
	switch {
	case d == InsideToExternal && len(outs) > 0:
		return nil, outs[rng.IntN(len(outs))], true
	case d == ExternalToHost && len(ins) > 0:
		return ins[rng.IntN(len(ins))], nil, true
	case len(ins) == 0 || len(outs) == 0:
		return nil, nil, false
	}
	// Start at a random pair and take the first one that is allowed, so that rare ones are found too.
	offset := rng.IntN(len(ins) * len(outs))
	for i := range len(ins) * len(outs) {
		k := (i + offset) % (len(ins) * len(outs))
		in, out = ins[k%len(ins)], outs[k/len(ins)]
		if in != out && passageOf(in.Type, out.Type) != forbidden {
			return in, out, true
		}
	}
	return nil, nil, false
}

// randomOuter sets the link by which the frame arrives, and its outer headers.
func randomOuter(rng *rand.Rand, n *Network, s *Spec, in *Interface) {
	if in != nil {
		s.Link = in.Link
	}
	l := n.Links[s.Link]
	s.External = l.Scope == External
	s.Outer = Outer{
		DstMAC: n.Devices[l.Device].MAC, SrcMAC: l.NextHop, Src: l.Remote, Dst: l.Local,
		ZeroChecksum: l.Local.Addr().Is4() && rng.IntN(5) == 0,
	}
	if l.Scope == Internal {
		h := n.Hosts[rng.IntN(len(n.Hosts))]
		s.Outer.SrcMAC = h.MAC
		s.Outer.Src = netip.AddrPortFrom(h.Addr, uint16(1024+rng.IntN(64000)))
	}
}

// randomEnds picks the SCION source and destination.
func randomEnds(rng *rand.Rand, n *Network, s *Spec) {
	s.SrcIA, s.DstIA = n.foreignIA(rng.Uint64N(1000)), n.foreignIA(rng.Uint64N(1000))
	s.SrcHost, s.DstHost = randomHost(rng), randomHost(rng)
	switch s.Direction {
	case InsideToExternal:
		s.SrcIA = n.IA
		// Usually a host's SCION address is its underlay address. The router does not check that.
		if s.SrcHost.Type() == addr.HostTypeSVC || rng.IntN(4) > 0 {
			s.SrcHost = addr.HostIP(s.Outer.Src.Addr())
		}
	case ExternalToHost:
		s.DstIA = n.IA
		s.DstHost = addr.HostIP(n.Hosts[rng.IntN(len(n.Hosts))].Addr)
		if rng.IntN(12) == 0 {
			s.DstHost = addr.HostSVC(addr.SvcCS)
			if rng.IntN(3) == 0 {
				s.DstHost = addr.HostSVC(addr.SvcDS.Multicast())
			}
		}
	}
}

func randomHost(rng *rand.Rand) addr.Host {
	switch k := rng.IntN(20); {
	case k == 0:
		return addr.HostSVC(addr.SvcCS)
	case k < 8:
		a := [16]byte{0xfd, 0, 0, 0xee, 15: byte(rng.Uint32())}
		return addr.HostIP(netip.AddrFrom16(a))
	default:
		return addr.HostIP(netip.AddrFrom4([4]byte{10, 9, byte(rng.Uint32()), byte(rng.Uint32())}))
	}
}

func randomPayload(rng *rand.Rand, n *Network, s *Spec) {
	p := &s.Payload
	*p = Payload{
		Kind: UDP, SrcPort: randomPort(rng, n), DstPort: randomPort(rng, n), HopByHop: -1, EndToEnd: -1,
	}
	if rng.IntN(2) == 0 {
		p.Kind = Kind(rng.IntN(int(NumKinds)))
	}
	if p.Kind >= ErrorUDP && s.numHops() > 40 {
		// The quoted header contains the path, so it would not fit into an SCMP message.
		p.Kind = UDP
	}
	if p.Kind >= ErrorUDP {
		p.ErrorType = []slayers.SCMPType{1, 2, 4, 5, 6}[rng.IntN(5)]
	}
	if rng.IntN(8) == 0 {
		p.HopByHop = rng.IntN(40)
	}
	if rng.IntN(8) == 0 {
		p.EndToEnd = rng.IntN(40)
	}
	switch k := rng.IntN(10); {
	case k < 5:
		p.Size = rng.IntN(200)
	case k < 8:
		p.Size = rng.IntN(1400)
	default:
		p.Size = rng.IntN(8001)
	}
	limit := n.MaxPacket
	if limit == 0 {
		limit = defaultMaxPacket
	}
	// 232 bytes are enough for the common and address headers, the meta field, three info fields, two
	// extension headers and the layer-4 header of any packet made here.
	p.Size = max(0, min(p.Size, limit-232-12*s.numHops()))
	if p.Kind >= ErrorUDP {
		// The quote repeats the path.
		p.Size = min(p.Size, max(0, limit-464-24*s.numHops()))
	}
}

func (s *Spec) numHops() int {
	hops := 0
	for _, seg := range s.Segments {
		hops += len(seg.Hops)
	}
	return hops
}

// randomPort returns a port that is often next to a bound of the dispatched ports.
func randomPort(rng *rand.Rand, n *Network) uint16 {
	switch rng.IntN(6) {
	case 0:
		return max(1, n.PortStart-uint16(rng.IntN(2)))
	case 1:
		return max(1, n.PortEnd+uint16(rng.IntN(2)))
	case 2:
		return topology.EndhostPort
	default:
		return uint16(1 + rng.IntN(65535))
	}
}

// inScope reports whether a fast path has to forward a valid packet itself. There are three exceptions. A
// service address stands for a random server. The port of an SCMP error is deep inside its quote. A
// datagram without a checksum that leaves over IPv6 needs one over all its bytes.
func inScope(n *Network, s *Spec, out *Interface) bool {
	leavesOn := n.Links[0].Local.Addr()
	if out != nil {
		leavesOn = n.Links[out.Link].Local.Addr()
	}
	if s.Outer.ZeroChecksum && leavesOn.Is6() {
		return false
	}
	if s.Direction == ExternalToHost {
		return s.DstHost.Type() == addr.HostTypeIP && s.Payload.Kind < ErrorUDP
	}
	return true
}
