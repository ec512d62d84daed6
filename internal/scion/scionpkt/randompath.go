// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"math/rand/v2"

	"github.com/scionproto/scion/private/topology"
)

// pathBuilder builds the path of a packet that enters the AS by in and leaves it by out; nil is the
// inside of the AS.
type pathBuilder struct {
	rng     *rand.Rand
	net     *Network
	spec    *Spec
	in, out *Interface
	// shortest makes the path as short as possible, and valid for a day.
	shortest bool
}

func (b *pathBuilder) build() {
	switch b.passage() {
	case crossing:
		b.crossing()
	case overPeer:
		b.overPeer()
	default:
		b.within()
	}
	b.point()
}

func (b *pathBuilder) passage() passage {
	switch {
	case b.in != nil && b.out != nil:
		return passageOf(b.in.Type, b.out.Type)
	case b.in != nil && b.in.Type == topology.Peer, b.out != nil && b.out.Type == topology.Peer:
		return overPeer
	default:
		return within
	}
}

// within puts the own hop inside one segment. It is first on the path of a packet from inside, last on that
// of a packet to a host, and otherwise has hops on both sides.
func (b *pathBuilder) within() {
	count := 1 + b.upTo(2)
	at := b.rng.IntN(count)
	before, after := b.someHops(), b.someHops()
	if count == 1 && !b.shortest && b.rng.IntN(20) == 0 {
		// A segment can have up to 63 hop fields.
		before, after = 1+b.rng.IntN(31), 1+b.rng.IntN(31)
	}
	typ := topology.Core
	if b.in != nil {
		typ = b.in.Type
	}
	consDir := typ == topology.Parent
	switch {
	case b.in == nil:
		at, before, typ = 0, 0, b.out.Type
		consDir = typ == topology.Child
	case b.out == nil:
		at, after = count-1, 0
	}
	if typ == topology.Core {
		consDir = b.rng.IntN(2) == 0
	}
	// A peering flag does not matter for a hop that is not next to the peering link.
	peering := count == 2 && b.rng.IntN(4) == 0
	for i := range count {
		seg := b.segment(b.rng.IntN(2) == 0)
		if i == at {
			seg = b.segment(b.flip(consDir))
			seg.Hops = b.around(before, b.hop(seg, b.in, b.out), after)
		} else {
			seg.Hops = b.foreign(2 + b.someHops())
		}
		seg.Peer = peering
		b.spec.Segments = append(b.spec.Segments, seg)
	}
}

// crossing puts one own hop at the end of a segment and another at the start of the next.
func (b *pathBuilder) crossing() {
	count := 2 + b.upTo(1)
	at := b.rng.IntN(count - 1)
	// A shortcut joins two segments that continue towards the core. The unused sides of the two hop fields
	// then have an interface towards the core. Otherwise the segments end here, and they have none.
	var stub *Interface
	if b.in.Type == topology.Child && b.out.Type == topology.Child {
		stub = b.parent()
	}
	for i := range count {
		var seg Segment
		switch i {
		case at:
			seg = b.segment(b.flip(b.in.Type == topology.Core && b.rng.IntN(2) == 0))
			seg.Hops = b.around(b.someHops(), b.hop(seg, b.in, stub), 0)
		case at + 1:
			seg = b.segment(b.flip(b.out.Type == topology.Child || b.rng.IntN(2) == 0))
			seg.Hops = b.around(0, b.hop(seg, stub, b.out), b.someHops())
		default:
			seg = b.segment(b.rng.IntN(2) == 0)
			seg.Hops = b.foreign(2 + b.someHops())
		}
		b.spec.Segments = append(b.spec.Segments, seg)
	}
}

// parent returns an interface towards the core, or nil.
func (b *pathBuilder) parent() *Interface {
	for i := range b.net.Interfaces {
		if intf := &b.net.Interfaces[i]; intf.Type == topology.Parent && b.rng.IntN(2) == 0 {
			return intf
		}
	}
	return nil
}

// overPeer puts the own hop next to the boundary of two segments that a peering link joins.
func (b *pathBuilder) overPeer() {
	up, down := b.segment(b.flip(false)), b.segment(b.flip(true))
	up.Peer, down.Peer = true, true
	if b.out != nil && b.out.Type == topology.Peer {
		before := 0
		if b.in != nil {
			before = b.someHops()
		}
		up.Hops = b.around(before, b.hop(up, b.in, b.out), 0)
		down.Hops = b.foreign(b.someHops())
	} else {
		after := 0
		if b.out != nil {
			after = b.someHops()
		}
		up.Hops = b.foreign(b.someHops())
		down.Hops = b.around(0, b.hop(down, b.in, b.out), after)
	}
	b.spec.Segments = []Segment{up, down}
}

// point sets the current hop: the first own one, or the second if a sibling has already moved the packet
// to the next segment.
func (b *pathBuilder) point() {
	hf := 0
	for i, seg := range b.spec.Segments {
		for _, h := range seg.Hops {
			if h.Own {
				b.spec.CurrINF, b.spec.CurrHF = uint8(i), uint8(hf)
				if b.spec.Direction != SiblingToExternal {
					return
				}
			}
			hf++
		}
	}
}

// flip sometimes reverses the usual construction direction, which routers do not check.
func (b *pathBuilder) flip(consDir bool) bool {
	return consDir != (!b.shortest && b.rng.IntN(8) == 0)
}

// upTo returns a random number from 0 to n, or 0 for the shortest path.
func (b *pathBuilder) upTo(n int) int {
	if b.shortest {
		return 0
	}
	return b.rng.IntN(n + 1)
}

// someHops returns a number of hops on one side of the own one: mostly few, sometimes many. Three segments
// with the largest numbers still fit into 64 hop fields.
func (b *pathBuilder) someHops() int {
	if b.shortest {
		return 1
	}
	if b.rng.IntN(20) == 0 {
		return 1 + b.rng.IntN(11)
	}
	return 1 + b.rng.IntN(3)
}

// Lifetimes of hop fields are in units of 337.5 s. So that no packet expires during a test, every timestamp is
// ageMargin to 230 s before a multiple of twice the unit.
const (
	halfUnit  = 675
	ageMargin = 100
)

// segment makes an empty segment with a timestamp in the past.
func (b *pathBuilder) segment(consDir bool) Segment {
	age := uint32(b.upTo(19))*halfUnit + ageMargin + uint32(b.rng.IntN(130))
	return Segment{ConsDir: consDir, Timestamp: b.net.Now - age, Beta: uint16(b.rng.Uint32())}
}

// hop makes the own hop of a segment, for a packet from in to out.
func (b *pathBuilder) hop(seg Segment, in, out *Interface) Hop {
	if b.shortest {
		return b.ends(Hop{Own: true, ExpTime: 255}, seg, in, out)
	}
	unitsOld := (b.net.Now - seg.Timestamp) * 2 / halfUnit
	exp := uint8(int(unitsOld) + b.rng.IntN(256-int(unitsOld)))
	return b.ends(Hop{Own: true, ExpTime: exp}, seg, in, out)
}

// ends sets the interfaces of a hop field.
func (b *pathBuilder) ends(h Hop, seg Segment, in, out *Interface) Hop {
	if in != nil {
		h.ConsIngress = in.ID
	}
	if out != nil {
		h.ConsEgress = out.ID
	}
	if !seg.ConsDir {
		h.ConsIngress, h.ConsEgress = h.ConsEgress, h.ConsIngress
	}
	return h
}

func (b *pathBuilder) around(before int, own Hop, after int) []Hop {
	return append(append(b.foreign(before), own), b.foreign(after)...)
}

// foreign makes n hops of other ASes, at which the router under test does not look.
func (b *pathBuilder) foreign(n int) []Hop {
	hops := make([]Hop, n)
	for i := range hops {
		hops[i] = Hop{
			ConsIngress: uint16(b.rng.Uint32()), ConsEgress: uint16(b.rng.Uint32()),
			ExpTime: uint8(b.rng.Uint32()),
		}
		for k := range hops[i].MAC {
			hops[i].MAC[k] = byte(b.rng.Uint32())
		}
	}
	return hops
}

// lengthen adds foreign hops until the path has the given number. An own hop that is first or last stays so.
func (b *pathBuilder) lengthen(hops int) {
	for i := 0; b.spec.numHops() < hops; i++ {
		seg := &b.spec.Segments[i%len(b.spec.Segments)]
		switch {
		case seg.Hops[0].Own && len(seg.Hops) == 1:
			// The hop is first or last on the path and next to a peering link, so no hop can be added.
		case seg.Hops[0].Own:
			seg.Hops = append(seg.Hops, b.foreign(1)...)
		default:
			seg.Hops = append(b.foreign(1), seg.Hops...)
		}
	}
	b.point()
}
