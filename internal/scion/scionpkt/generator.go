// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
	"github.com/scionproto/scion/private/topology"
)

// way is a pair of interfaces by which packets enter and leave the AS; nil is the inside.
type way struct {
	dir     Direction
	in, out *Interface
}

// generator makes the packets of one pcap file. Equal options make packets that differ only in the
// timestamps of the paths.
type generator struct {
	net      *Network
	opts     GenerateOptions
	ways     []way
	src, dst *[6]byte
}

func newGenerator(n *Network, o GenerateOptions) (*generator, error) {
	g := &generator{net: n, opts: o}
	switch {
	case o.Flows < 1:
		return nil, fmt.Errorf("%d flows: want at least 1", o.Flows)
	case len(o.Sizes) == 0:
		return nil, fmt.Errorf("no frame size given")
	case o.HopFields < 2 || o.HopFields >= scion.MaxHops:
		return nil, fmt.Errorf("%d hop fields: want 2 to %d", o.HopFields, scion.MaxHops-1)
	case !slices.Contains([]string{"4", "6", "both"}, o.Family):
		return nil, fmt.Errorf("family %q: want 4, 6 or both", o.Family)
	}
	var err error
	if g.src, err = parseMAC(o.SrcMAC); err != nil {
		return nil, err
	}
	if g.dst, err = parseMAC(o.DstMAC); err != nil {
		return nil, err
	}
	for flag, id := range map[string]int{"ingress": o.Ingress, "egress": o.Egress} {
		if err := n.haveInterface(flag, id); err != nil {
			return nil, err
		}
	}
	if err := g.findWays(); err != nil {
		return nil, err
	}
	// Find packets that cannot be made before anything is written.
	for i := range min(o.Flows, 2*len(g.ways)) {
		for _, size := range o.Sizes {
			if _, err := g.packet(i, size); err != nil {
				return nil, err
			}
		}
	}
	return g, nil
}

// haveInterface returns an error if the AS has no interface id. 0 and negative numbers are none.
func (n *Network) haveInterface(flag string, id int) error {
	var ids []int
	for _, i := range n.Interfaces {
		ids = append(ids, int(i.ID))
	}
	if id <= 0 || slices.Contains(ids, id) {
		return nil
	}
	slices.Sort(ids)
	return fmt.Errorf("%s %d: the topology has no interface %d: its interfaces are %s", flag, id, id,
		strings.Trim(fmt.Sprint(ids), "[]"))
}

// findWays lists the ways that match the options.
func (g *generator) findWays() error {
	var chosen [NumDirections]bool
	for _, name := range g.opts.Directions {
		d, ok := directionByName(name)
		if !ok {
			return fmt.Errorf("direction %q: want external->external, external->sibling, "+
				"sibling->external, inside->external or external->host", name)
		}
		chosen[d] = true
	}
	mine, others := g.net.owned()
	inside := []*Interface{nil}
	ends := [NumDirections][2][]*Interface{
		ExternalToExternal: {mine, mine}, ExternalToSibling: {mine, others},
		SiblingToExternal: {others, mine}, InsideToExternal: {inside, mine},
		ExternalToHost: {mine, inside},
	}
	for d := range NumDirections {
		if len(g.opts.Directions) > 0 && !chosen[d] {
			continue
		}
		for _, in := range ends[d][0] {
			for _, out := range ends[d][1] {
				if g.allowed(d, in, out) {
					g.ways = append(g.ways, way{d, in, out})
				}
			}
		}
	}
	if len(g.ways) == 0 {
		return fmt.Errorf("no way through router %s fits the wanted interfaces, directions, "+
			"family and %d hop fields", g.net.RouterID, g.opts.HopFields)
	}
	return nil
}

func directionByName(name string) (Direction, bool) {
	for d := range NumDirections {
		if d.String() == name {
			return d, true
		}
	}
	return 0, false
}

// allowed reports whether packets can go from in to out, with the options' number of hop fields and
// family, and whether the options' interfaces match.
func (g *generator) allowed(d Direction, in, out *Interface) bool {
	fewest := 2
	if in != nil && out != nil {
		p := passageOf(in.Type, out.Type)
		if in == out || p == forbidden {
			return false
		}
		fewest = map[passage]int{within: 3, overPeer: 3, crossing: 4}[p]
	}
	// Hosts have addresses of the family of the AS-internal network.
	other := "4"
	if g.net.Links[0].Local.Addr().Is4() {
		other = "6"
	}
	reachable := d != ExternalToHost || g.opts.Family != other
	return reachable && g.opts.HopFields >= fewest &&
		matches(g.opts.Ingress, in) && matches(g.opts.Egress, out)
}

// matches reports whether an interface is the wanted one: negative for any, 0 for the inside.
func matches(want int, intf *Interface) bool {
	return want < 0 || want == 0 && intf == nil || intf != nil && int(intf.ID) == want
}

// packet makes the packet of a flow with the given frame length.
func (g *generator) packet(flow, size int) ([]byte, error) {
	rng := rand.New(rand.NewPCG(uint64(flow), 0))
	w := g.ways[flow%len(g.ways)]
	s := Spec{Direction: w.dir, Key: g.net.Key, FlowID: uint32(flow) & 0xfffff}
	b := pathBuilder{rng: rng, net: g.net, spec: &s, in: w.in, out: w.out, shortest: true}
	b.build()
	b.lengthen(g.opts.HopFields)
	randomOuter(rng, g.net, &s, w.in)
	s.Outer.ZeroChecksum = false
	if g.src != nil {
		s.Outer.SrcMAC = *g.src
	}
	if g.dst != nil {
		s.Outer.DstMAC = *g.dst
	}
	g.ends(flow/len(g.ways), &s)
	s.Payload = Payload{
		Kind: UDP, SrcPort: uint16(1024 + flow%60000), DstPort: topology.EndhostPort,
		HopByHop: -1, EndToEnd: -1,
	}
	f, err := s.Build()
	if err != nil {
		return nil, err
	}
	if size < len(f) {
		return nil, fmt.Errorf("a frame of %d bytes is too short for %s with %d hop fields: the "+
			"headers take %d", size, w.dir, g.opts.HopFields, len(f))
	}
	s.Payload.Size = size - len(f)
	return s.Build()
}

// ends sets the packet's source and destination. Their addresses depend on number.
func (g *generator) ends(number int, s *Spec) {
	s.SrcIA, s.DstIA = g.net.foreignIA(1), g.net.foreignIA(2)
	six := g.opts.Family == "6" || g.opts.Family == "both" && number%2 == 1
	src := netip.AddrFrom4([4]byte{10, byte(number >> 16), byte(number >> 8), byte(number)})
	dst := netip.AddrFrom4([4]byte{10, 255, 0, 1})
	if six {
		src = netip.AddrFrom16([16]byte{
			0xfd, 13: byte(number >> 16), 14: byte(number >> 8), 15: byte(number),
		})
		dst = netip.AddrFrom16([16]byte{0xfd, 1, 15: 1})
	}
	s.SrcHost, s.DstHost = addr.HostIP(src), addr.HostIP(dst)
	switch s.Direction {
	case InsideToExternal:
		s.SrcIA = g.net.IA
	case ExternalToHost:
		s.DstIA = g.net.IA
		s.DstHost = addr.HostIP(g.net.Hosts[number%len(g.net.Hosts)].Addr)
	}
}
