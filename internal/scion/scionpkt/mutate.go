// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"encoding/binary"
	"math/rand/v2"
)

// mutator damages one field of the SCION packet in a frame. It returns the frame, whose length may
// change.
type mutator struct {
	name  string
	apply func(rng *rand.Rand, f []byte, p *parts) []byte
}

// parts has the offsets of a SCION packet's fields in a frame.
type parts struct {
	Layout
	// hosts, path, infos, hops and payload are the starts of these parts.
	hosts, path, infos, hops, payload int
	numINF, numHF                     int
	currINF, currHF                   int
}

// dissect finds the parts of a frame with a SCION path, such as Build makes. ok is false if they do
// not fit.
func dissect(f []byte) (parts, bool) {
	l, ok := Locate(f)
	p := parts{Layout: l}
	if !ok || len(f) < l.SCION+36 {
		return p, false
	}
	h := f[l.SCION:]
	p.hosts = l.SCION + 28
	p.path = p.hosts + 4*(int(h[9]>>4&3)+1) + 4*(int(h[9]&3)+1)
	p.payload = l.SCION + 4*int(h[5])
	if len(f) < p.path+4 || p.payload > len(f) || h[8] != 1 {
		return p, false
	}
	meta := binary.BigEndian.Uint32(f[p.path:])
	p.currINF, p.currHF = int(meta>>30), int(meta>>24&63)
	for shift := 12; shift >= 0; shift -= 6 {
		if n := int(meta >> shift & 63); n > 0 {
			p.numINF++
			p.numHF += n
		}
	}
	p.infos = p.path + 4
	p.hops = p.infos + 8*p.numINF
	return p, p.hops+12*p.numHF <= p.payload && p.currINF < p.numINF && p.currHF < p.numHF
}

// info returns the offset of the current info field, and sometimes of another one.
func (p *parts) info(rng *rand.Rand) int {
	i := p.currINF
	if rng.IntN(4) == 0 {
		i = rng.IntN(p.numINF)
	}
	return p.infos + 8*i
}

// hop returns the offset of the current hop field, and sometimes of the next or any other.
func (p *parts) hop(rng *rand.Rand) int {
	i := p.currHF
	switch rng.IntN(6) {
	case 0:
		i = rng.IntN(p.numHF)
	case 1:
		i = min(i+1, p.numHF-1)
	}
	return p.hops + 12*i
}

// field returns a mutator that changes the bits of mask in the byte at an offset.
func field(name string, mask byte, at func(*rand.Rand, *parts) int) mutator {
	return mutator{name, func(rng *rand.Rand, f []byte, p *parts) []byte {
		o := at(rng, p)
		old := f[o]
		for f[o] == old {
			f[o] = old&^mask | byte(rng.Uint32())&mask
		}
		return f
	}}
}

// header returns the offset of byte o of the common header.
func header(o int) func(*rand.Rand, *parts) int {
	return func(_ *rand.Rand, p *parts) int { return p.SCION + o }
}

func infoByte(o, n int) func(*rand.Rand, *parts) int {
	return func(rng *rand.Rand, p *parts) int { return p.info(rng) + o + rng.IntN(n) }
}

func hopByte(o, n int) func(*rand.Rand, *parts) int {
	return func(rng *rand.Rand, p *parts) int { return p.hop(rng) + o + rng.IntN(n) }
}

func headerRange(o, n int) func(*rand.Rand, *parts) int {
	return func(rng *rand.Rand, p *parts) int { return p.SCION + o + rng.IntN(n) }
}

var mutators = []mutator{
	field("version", 0xf0, header(0)),
	field("traffic class", 0x0f, header(0)),
	field("flow label", 0xff, headerRange(2, 2)),
	{"next header", nextHeader},
	field("header length", 0xff, header(5)),
	{"header length by one", func(rng *rand.Rand, f []byte, p *parts) []byte {
		f[p.SCION+5] += byte(2*rng.IntN(2)) - 1
		return f
	}},
	field("payload length", 0xff, headerRange(6, 2)),
	{"path type", func(rng *rand.Rand, f []byte, p *parts) []byte {
		f[p.SCION+8] = []byte{0, 2, 3, 4, byte(rng.Uint32())}[rng.IntN(5)]
		return f
	}},
	field("destination address type", 0xf0, header(9)),
	field("source address type", 0x0f, header(9)),
	field("reserved bytes", 0xff, headerRange(10, 2)),
	field("destination AS bits", 0xff, headerRange(12, 8)),
	field("source AS bits", 0xff, headerRange(20, 8)),
	{"host address", hostAddress},
	field("host address bits", 0xff, func(rng *rand.Rand, p *parts) int {
		return p.hosts + rng.IntN(p.path-p.hosts)
	}),
	field("current info field", 0xc0, func(_ *rand.Rand, p *parts) int { return p.path }),
	field("current hop field", 0x3f, func(_ *rand.Rand, p *parts) int { return p.path }),
	{"current hop field by one", func(rng *rand.Rand, f []byte, p *parts) []byte {
		f[p.path] = f[p.path]&0xc0 | (f[p.path]+byte(2*rng.IntN(2))-1)&0x3f
		return f
	}},
	field("reserved path bits", 0xfc, func(_ *rand.Rand, p *parts) int { return p.path + 1 }),
	{"segment lengths", segmentLengths},
	field("info flags", 0x03, infoByte(0, 1)),
	field("reserved info flags", 0xfc, infoByte(0, 1)),
	field("reserved info byte", 0xff, infoByte(1, 1)),
	field("SegID", 0xff, infoByte(2, 2)),
	field("timestamp", 0xff, infoByte(4, 4)),
	field("hop flags", 0x03, hopByte(0, 1)),
	field("reserved hop flags", 0xfc, hopByte(0, 1)),
	field("expiry", 0xff, hopByte(1, 1)),
	field("hop ingress", 0xff, hopByte(2, 2)),
	field("hop egress", 0xff, hopByte(4, 2)),
	field("MAC", 0xff, hopByte(6, 6)),
	{"MAC bit", func(rng *rand.Rand, f []byte, p *parts) []byte {
		f[p.hop(rng)+6+rng.IntN(6)] ^= 1 << rng.IntN(8)
		return f
	}},
	{"payload bytes", func(rng *rand.Rand, f []byte, p *parts) []byte {
		if n := min(len(f)-p.payload, 64); n > 0 {
			f[p.payload+rng.IntN(n)] = byte(rng.Uint32())
		}
		return f
	}},
	{"short payload", shortPayload},
	{"truncated", func(rng *rand.Rand, f []byte, p *parts) []byte {
		return f[:p.SCION+rng.IntN(len(f)-p.SCION)]
	}},
	{"cut by a little", func(rng *rand.Rand, f []byte, p *parts) []byte {
		return f[:max(p.SCION, len(f)-1-rng.IntN(16))]
	}},
	{"trailing bytes", func(rng *rand.Rand, f []byte, _ *parts) []byte {
		return append(f, make([]byte, 1+rng.IntN(16))...)
	}},
	{"any byte", func(rng *rand.Rand, f []byte, p *parts) []byte {
		f[p.SCION+rng.IntN(len(f)-p.SCION)] = byte(rng.Uint32())
		return f
	}},
}

// nextHeader sets the next header to a known protocol or any number.
func nextHeader(rng *rand.Rand, f []byte, p *parts) []byte {
	f[p.SCION+4] = []byte{
		0, 6, 17, 200, 201, 202, 203, 253, 254, byte(rng.Uint32()),
	}[rng.IntN(10)]
	return f
}

// hostAddress replaces the destination or the source host by a special address or the next one.
func hostAddress(rng *rand.Rand, f []byte, p *parts) []byte {
	dstLen := 4 * (int(f[p.SCION+9]>>4&3) + 1)
	host := f[p.hosts : p.hosts+dstLen]
	if rng.IntN(2) == 0 {
		host = f[p.hosts+dstLen : p.path]
	}
	switch k := rng.IntN(4); {
	case k == 0 && len(host) == 16:
		copy(host, []byte{10: 0xff, 11: 0xff, 12: 10, 15: 10})
	case k == 1:
		clear(host)
	case k == 2:
		host[0] = 0xff
	default:
		host[len(host)-1]++
	}
	return f
}

// segmentLengths moves the boundary between two segments, or changes one length.
func segmentLengths(rng *rand.Rand, f []byte, p *parts) []byte {
	meta := binary.BigEndian.Uint32(f[p.path:])
	switch i := 6 * rng.IntN(3); rng.IntN(3) {
	case 0:
		meta = meta&^(63<<i) | rng.Uint32()&63<<i
	case 1:
		meta += 1<<i - 1<<((i+6)%18)
	default:
		meta += 1 << i
	}
	binary.BigEndian.PutUint32(f[p.path:], meta)
	return f
}

// shortPayload cuts the payload to a few bytes, and sets the payload length accordingly.
func shortPayload(rng *rand.Rand, f []byte, p *parts) []byte {
	n := min(len(f)-p.payload, rng.IntN(24))
	binary.BigEndian.PutUint16(f[p.SCION+6:], uint16(n))
	return f[:p.payload+n]
}

// Mutate returns a damaged copy of a frame, and the name of the damage: one or two fields of the SCION
// packet, and sometimes one of the outer headers. Most frames get right outer lengths and checksums, so
// that the router looks at the SCION packet at all.
func Mutate(rng *rand.Rand, frame []byte) ([]byte, string) {
	f := append(make([]byte, 0, len(frame)+16), frame...)
	name := ""
	for {
		p, ok := dissect(f)
		if !ok {
			break
		}
		m := mutators[rng.IntN(len(mutators))]
		f = m.apply(rng, f, &p)
		if name != "" {
			name = "several"
			break
		}
		name = m.name
		if rng.IntN(8) > 0 {
			break
		}
	}
	zero := absentChecksum(frame)
	switch rng.IntN(12) {
	case 0:
		// Lengths and checksums stay as they were.
	case 1:
		FixOuter(f)
		return mutateOuter(rng, f)
	default:
		FixOuter(f)
		if l, ok := Locate(f); ok && zero {
			f[l.UDP+6], f[l.UDP+7] = 0, 0
		}
	}
	return f, name
}

// absentChecksum reports whether a frame is an IPv4 datagram without a UDP checksum.
func absentChecksum(f []byte) bool {
	l, ok := Locate(f)
	return ok && !l.IPv6 && f[l.UDP+6] == 0 && f[l.UDP+7] == 0
}
