// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"encoding/binary"
	"net/netip"
)

func addr6(s string) netip.Addr { return netip.MustParseAddr(s) }

// extension returns an IPv6 extension header of eights times 8 bytes. Body goes after next header and
// length. Without a body, one padding option fills the header.
func extension(next byte, eights int, body ...byte) []byte {
	b := make([]byte, 8*eights)
	b[0], b[1] = next, byte(eights-1)
	b[2], b[3] = 1, byte(8*eights-4)
	copy(b[2:], body)
	return b
}

// fragment6 returns a fragment header. Offset includes the flag for more fragments.
func fragment6(next byte, offset uint16, id uint32) []byte {
	b := []byte{next, 0}
	b = binary.BigEndian.AppendUint16(b, offset)
	return binary.BigEndian.AppendUint32(b, id)
}

// kinds6 are the kinds of IPv6 packets.
var kinds6 = []kind{
	{"6 plain", func(g *generator, p *packet) {
		p.frame = g.head6(p).build()
	}},
	{"6 connected", func(g *generator, p *packet) {
		h := g.head6(p)
		h.dst = g.neighbor(g.IntN(ports), true)
		p.frame = h.build()
	}},
	{"6 hop limit", func(g *generator, p *packet) {
		h := g.head6(p)
		h.hops = one[byte](g, 0, 1, 2, 64, 255)
		p.frame = h.build()
	}},
	{"6 payload length", func(g *generator, p *packet) {
		h := g.head6(p)
		full := len(h.payload)
		h.length = max(0, one(g, full-1, full+1, full/2, 0, full+100, 65535))
		// A packet with length 0 may be a jumbogram.
		p.ordinary = h.length > 0 && h.length <= full
		if h.next == 58 {
			p.flow = flowInner
		}
		p.frame = h.build()
	}},
	{"6 trailing bytes", func(g *generator, p *packet) {
		h := g.head6(p)
		h.trailing = g.bytes(one(g, 1, 2, 4, 18, 100))
		p.ordinary = len(h.payload) > 0
		p.frame = h.build()
	}},
	{"6 truncated", func(g *generator, p *packet) {
		f := g.head6(p).build()
		p.ordinary = false
		p.frame = f[:14+g.IntN(min(len(f)-14, 80))]
	}},
	{"6 version", func(g *generator, p *packet) {
		h := g.head6(p)
		p.ordinary = false
		h.version = g.IntN(16)
		p.frame = h.build()
	}},
	{"6 around the MTU", func(g *generator, p *packet) {
		h := g.head6(p)
		size := one(g, 1000, 1280, 1300, 1400, 1450, 1499, 1500) + g.IntN(3) - 1
		h.next, h.payload = 17, g.bytes(min(size, g.room[p.port])-40)
		p.flow = flowPorts
		p.frame = h.build()
	}},
	{"6 fragments", func(g *generator, p *packet) {
		h := g.head6(p)
		p.flow = flowInner
		next := h.next
		h.next = 44
		if g.chance(4) {
			h.payload = h.payload[:min(len(h.payload), one(g, 0, 1, 4, 7))]
		}
		offset := one(g, 0, 1, 8, 9, uint16(g.Uint32())&^7, uint16(g.Uint32())|1)
		h.payload = append(fragment6(next, offset, g.Uint32()), h.payload...)
		p.frame = h.build()
	}},
	{"6 destination options", func(g *generator, p *packet) {
		h := g.head6(p)
		p.flow = flowInner
		h.payload = append(extension(h.next, one(g, 1, 2, 3, 9)), h.payload...)
		h.next = 60
		p.frame = h.build()
	}},
	{"6 routing header", func(g *generator, p *packet) {
		h := g.head6(p)
		p.flow = flowInner
		h.payload = append(extension(h.next, 3, one[byte](g, 0, 2, 3, 4, 200), one[byte](g, 0, 1)), h.payload...)
		h.next = 43
		p.frame = h.build()
	}},
	{"6 hop-by-hop", func(g *generator, p *packet) {
		h := g.head6(p)
		p.ordinary = false
		body := one(g, []byte{1, 4}, []byte{5, 2, 0, 0, 1, 0}, []byte{0xc2, 4, 0, 1, 0, 0}, []byte{0x3e, 4}, []byte{0x7e, 4},
			[]byte{0xbe, 4}, []byte{0xfe, 4}, []byte{1, 200}, []byte{0, 0, 0, 0, 0, 0})
		h.payload = append(extension(h.next, 1, body...), h.payload...)
		h.next = 0
		if g.chance(4) {
			h.length = 0
		}
		if g.chance(4) {
			h.payload[1] = byte(g.Uint32())
		}
		p.frame = h.build()
	}},
	{"6 chain of headers", func(g *generator, p *packet) {
		h := g.head6(p)
		p.flow = flowInner
		for range 1 + g.IntN(6) {
			typ := one[byte](g, 60, 60, 43, 44)
			if typ == 44 {
				h.payload = append(fragment6(h.next, uint16(g.IntN(2)), g.Uint32()), h.payload...)
			} else {
				h.payload = append(extension(h.next, 1+g.IntN(2), 4, 0), h.payload...)
			}
			h.next = typ
		}
		p.frame = h.build()
	}},
	{"6 none or unknown next", func(g *generator, p *packet) {
		h := g.head6(p)
		p.flow = flowInner
		h.next = one[byte](g, 59, 50, 51, 135, 139, 140, 253, 254, 255)
		if g.chance(4) {
			h.payload = nil
			p.ordinary = false
		}
		p.frame = h.build()
	}},
	{"6 special destination", func(g *generator, p *packet) {
		h := g.head6(p)
		n := g.IntN(ports)
		p.ordinary = false
		h.dst = one(g, host6(n, 1), host6(n, 0), local6(n, 1), local6(p.port, 1), local6(p.port, firstHost), addr6("ff02::1"), addr6("ff01::1"),
			addr6("ff05::2"), addr6("ff0e::1234"), addr6("ff02::1:ff00:1"), addr6("::1"), addr6("::"), addr6("::ffff:10.1.1.2"),
			addr6("::10.1.1.2"), addr6("fec0::1"), addr6("100::1"), addr6("2002:a01:102::1"))
		// Neighbor discovery would change the neighbor table of the kernel.
		if h.next == 58 {
			h.next = 17
		}
		p.frame = h.build()
	}},
	{"6 no neighbor", func(g *generator, p *packet) {
		h := g.head6(p)
		h.dst = host6(g.IntN(ports), 0x100+g.IntN(4))
		p.frame = h.build()
	}},
	{"6 no route", func(g *generator, p *packet) {
		h := g.head6(p)
		h.dst = g.stranger(true)
		p.frame = h.build()
	}},
	{"6 special source", func(g *generator, p *packet) {
		h := g.head6(p)
		n := g.IntN(ports)
		p.ordinary = false
		h.src = one(g, host6(n, 1), host6(n, 0), local6(n, 1), local6(p.port, firstHost), addr6("ff02::1"), addr6("ff0e::1"), addr6("::1"),
			addr6("::"), addr6("::ffff:10.1.1.2"), addr6("::10.1.1.2"), addr6("fec0::1"), g.stranger(true), h.dst, host6(n, 0x77))
		p.frame = h.build()
	}},
	{"6 any source", func(g *generator, p *packet) {
		h := g.head6(p)
		if a := g.table.pick(g, true); a.IsValid() {
			h.src = a
		}
		p.frame = h.build()
	}},
	{"6 sent elsewhere", func(g *generator, p *packet) {
		h := g.head6(p)
		other := hostMAC((p.port+1)%ports, 1)
		h.mac = one(g, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, []byte{0x33, 0x33, 0, 0, 0, 1}, hostMACOf((p.port+1)%ports),
			other[:], []byte{0, 0, 0, 0, 0, 0})
		p.frame = h.build()
	}},
	{"6 back where it came from", func(g *generator, p *packet) {
		h := g.head6(p)
		h.dst = g.neighbor(p.port, true)
		h.src = one(g, g.neighbor(p.port, true), g.src(p.port, true))
		p.frame = h.build()
	}},
	{"6 tagged", func(g *generator, p *packet) {
		f := g.head6(p).build()
		p.ordinary = false
		p.frame = append(append(append([]byte(nil), f[:12]...), 0x81, 0, 0, byte(g.IntN(3))), f[12:]...)
	}},
}

// batch returns n packets of a kind, received by ports that carry culvert.
func (g *generator) batch(k kind, n int) []*packet {
	all := make([]*packet, n)
	for i := range all {
		p := g.start(k.name, g.IntN(xdpPorts))
		k.make(g, p)
		all[i] = p
	}
	return all
}
