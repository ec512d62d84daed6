// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/private/topology"

	"culvert/internal/bench/load"
	"culvert/internal/scion/scionpkt"
)

// The SCION router under test: interface 1 is on Path.In, interface 2 on Path.Out, each a link to another AS. The
// internal network is on Path.Out as well.
var (
	scionIA = addr.MustParseIA("1-ff00:0:1")
	scionIn = scionLink{
		ia: addr.MustParseIA("1-ff00:0:2"), id: 1, remoteID: 1,
		local: addrPort("198.18.1.1:50000"), remote: addrPort("198.18.1.2:50000"),
	}
	scionOut = scionLink{
		ia: addr.MustParseIA("1-ff00:0:3"), id: 2, remoteID: 1,
		local: addrPort("198.18.2.1:50000"), remote: addrPort("198.18.2.2:50000"),
	}
	// scionInternal is the router's address inside the AS.
	scionInternal = addrPort("198.18.20.1:30042")
)

const (
	scionRouterID = "br1-ff00_0_1-1"
	// scionMTU is the length in bytes of the longest SCION packet: 1500 less IPv4 and UDP headers.
	scionMTU = 1472
	// scionMasterKey is the AS's master key, an arbitrary one.
	scionMasterKey = "culvert bench 16"
)

// scionLink is one external link of the router.
type scionLink struct {
	ia addr.IA
	// id and remoteID are the interface IDs of the link, at the router and at the neighbor.
	id, remoteID  uint16
	local, remote netip.AddrPort
}

// scionRouter has the properties of a router that packets through it depend on.
type scionRouter struct {
	// key is the key of its hop field MACs.
	key     [16]byte
	in, out scionLink
}

// scionSink is the destination host of all packets. It does not exist, and transit routers do not look at it.
var scionSink = netip.MustParseAddr("10.255.0.1")

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// forwardingKey derives the key of hop field MACs from a master key, as scionproto's pkg/scrypto does.
func forwardingKey(master string) (key [16]byte, err error) {
	derived, err := pbkdf2.Key(sha256.New, master, []byte("Derive OF Key"), 1000, len(key))
	if err != nil {
		return key, fmt.Errorf("derive the forwarding key: %w", err)
	}
	copy(key[:], derived)
	return key, nil
}

// benchRouter is the router that the bench itself sets up.
func benchRouter() (scionRouter, error) {
	key, err := forwardingKey(scionMasterKey)
	return scionRouter{key: key, in: scionIn, out: scionOut}, err
}

// SCIONTraffic describes the packets for a SCION router under test.
type SCIONTraffic struct {
	// Cold gives each packet a hop field of its own. Without it all packets have the same.
	Cold bool
	// Crossing makes packets change segments at the router, which has to verify two hop fields then. Without it they
	// continue in their segment.
	Crossing bool
	// Shapes gives packets paths with different numbers of hop fields, and extension headers in front of the payload.
	Shapes bool
	// Size is the length of each frame in bytes, or IMIX. Frames whose headers alone are longer are as long as the headers.
	Size int
	// Flows is the number of flows that take turns, 0 for one for each frame.
	Flows int
	// Payload is the minimum length of the payload in bytes. The headers have 134 bytes, or 146 with Crossing, so with a
	// stamp no frame is shorter than 150 or 162.
	Payload int
}

// linkTypes are the types of the router's two links.
func (t SCIONTraffic) linkTypes() (in, out topology.LinkType) {
	if t.Crossing {
		return topology.Child, topology.Core
	}
	return topology.Core, topology.Core
}

// frames makes n frames that arrive at r by Path.In and leave by Path.Out.
func (t SCIONTraffic) frames(r scionRouter, p Path, n int) (frames [][]byte, err error) {
	if t.Size == int(IMIX) {
		return t.mix(r, p, n, load.IMIX())
	}
	// Segments are an hour old, so that no clock considers them to be from the future. Their hop fields expire after six
	// hours.
	start := uint32(time.Now().Add(-time.Hour).Unix())
	payload := t.Payload
	frames = make([][]byte, n)
	for i := range frames {
		number := 0
		if t.Cold {
			number = i
		}
		flow := i
		if t.Flows > 0 {
			flow = i % t.Flows
		}
		spec := scionpkt.Spec{
			Outer:    scionpkt.Outer{DstMAC: [6]byte(p.In.MAC), SrcMAC: [6]byte(p.Source.MAC), Src: r.in.remote, Dst: r.in.local},
			External: true,
			Key:      r.key,
			FlowID:   uint32(flow) & 0xfffff,
			SrcIA:    r.in.ia,
			DstIA:    r.out.ia,
			SrcHost:  addr.HostIP(netip.AddrFrom4([4]byte{10, byte(flow >> 16), byte(flow >> 8), byte(flow)})),
			DstHost:  addr.HostIP(scionSink),
			Segments: t.segments(r, start-uint32(number>>16), uint16(number)),
			CurrHF:   1,
			Payload:  scionpkt.Payload{SrcPort: uint16(1024 + flow%60000), DstPort: 30041, Size: payload, HopByHop: -1, EndToEnd: -1},
		}
		if t.Shapes {
			shapePath(&spec, i)
		}
		if frames[i], err = spec.Build(); err != nil {
			return nil, fmt.Errorf("make SCION packet %d: %w", i, err)
		}
		if short := t.Size - len(frames[i]); short > 0 {
			payload += short
			spec.Payload.Size = payload
			if frames[i], err = spec.Build(); err != nil {
				return nil, fmt.Errorf("make SCION packet %d: %w", i, err)
			}
		}
	}
	return frames, nil
}

// segments are the segments of a path. The MACs of the router's hop fields depend on timestamp and beta.
func (t SCIONTraffic) segments(r scionRouter, timestamp uint32, beta uint16) []scionpkt.Segment {
	const sixHours = 63
	hop := func(in, out uint16, own bool) scionpkt.Hop {
		return scionpkt.Hop{ConsIngress: in, ConsEgress: out, ExpTime: sixHours, Own: own}
	}
	first, last := r.in.remoteID, r.out.remoteID
	if !t.Crossing {
		return []scionpkt.Segment{{
			ConsDir: true, Timestamp: timestamp, Beta: beta,
			Hops: []scionpkt.Hop{hop(0, first, false), hop(r.in.id, r.out.id, true), hop(last, 0, false)},
		}}
	}
	return []scionpkt.Segment{
		{Timestamp: timestamp, Beta: beta, Hops: []scionpkt.Hop{hop(first, 0, false), hop(0, r.in.id, true)}},
		{ConsDir: true, Timestamp: timestamp, Beta: beta, Hops: []scionpkt.Hop{hop(0, r.out.id, true), hop(last, 0, false)}},
	}
}

// shapePath adds hop fields of other ASes before and after the router's own, in another combination for each i below 400. It
// also adds extension headers in front of the payload.
func shapePath(s *scionpkt.Spec, i int) {
	const counts = 20
	before, behind := i%counts, i/counts%counts
	others := func(n int) (hops []scionpkt.Hop) {
		for range n {
			hops = append(hops, scionpkt.Hop{ConsIngress: 7, ConsEgress: 8, ExpTime: 63})
		}
		return hops
	}
	s.Segments[0].Hops = append(others(before), s.Segments[0].Hops...)
	last := len(s.Segments) - 1
	s.Segments[last].Hops = append(s.Segments[last].Hops, others(behind)...)
	s.CurrHF += uint8(before)
	s.Payload.HopByHop, s.Payload.EndToEnd = 0, 0
}

// mix makes n frames as frames does, whose sizes take turns. Frames whose headers alone are longer, such as the shortest of
// an IMIX, are as long as the headers.
func (t SCIONTraffic) mix(r scionRouter, p Path, n int, sizes []int) ([][]byte, error) {
	mixed := make([][]byte, n)
	unique := slices.Clone(sizes)
	slices.Sort(unique)
	for _, size := range slices.Compact(unique) {
		t.Size = size
		frames, err := t.frames(r, p, n)
		if err != nil {
			return nil, err
		}
		for i, f := range frames {
			if sizes[i%len(sizes)] == size {
				mixed[i] = f
			}
		}
	}
	return mixed, nil
}
