// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"encoding/binary"
	"net/netip"
)

// kind is a class of packets. The function make sets p.frame, and the other fields that differ from those of g.start.
type kind struct {
	name string
	make func(g *generator, p *packet)
}

func addr4(a, b, c, d int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(a), byte(b), byte(c), byte(d)})
}

// kinds4 are the kinds of IPv4 packets. The fast path has to forward a packet unless its kind clears packet.ordinary.
var kinds4 = []kind{
	{"4 plain", func(g *generator, p *packet) {
		p.frame = g.head4(p).build()
	}},
	{"4 connected", func(g *generator, p *packet) {
		h := g.head4(p)
		h.dst = g.neighbor(g.IntN(ports), false)
		p.frame = h.build()
	}},
	{"4 ttl", func(g *generator, p *packet) {
		h := g.head4(p)
		h.ttl = one[byte](g, 0, 1, 2, 64, 255)
		p.frame = h.build()
	}},
	{"4 checksum wrong", func(g *generator, p *packet) {
		h := g.head4(p)
		h.sumError = one(g, 1, 0x0100, 0xffff, uint16(1+g.IntN(0xffff)))
		p.frame = h.build()
	}},
	{"4 checksum edge", func(g *generator, p *packet) {
		h := g.head4(p)
		h.src = addr4(20, g.IntN(10), 0, 0)
		p.frame = h.build()
		// Choose the lower half of the source address so that the checksum of the header is want.
		want := one[uint16](g, 0xfeff, 0xfefe, 0xff00, 0xffff, 0, 0xfffe, 0xfdff)
		b := p.frame[14:34]
		b[10], b[11] = 0, 0
		binary.BigEndian.PutUint16(b[14:], ^sum16(append(b[:20:20], byte(want>>8), byte(want))))
		binary.BigEndian.PutUint16(b[10:], want)
		h.p.src, _ = netip.AddrFromSlice(append([]byte(nil), b[12:16]...))
	}},
	{"4 options", func(g *generator, p *packet) {
		h := g.head4(p)
		p.ordinary = false
		a, b := g.dst(p.port, false).As4(), g.dst(p.port, false).As4()
		route := append(append([]byte{}, a[:]...), b[:]...)
		h.options = one(g, []byte{1, 1, 1, 1}, []byte{0, 0, 0, 0}, []byte{1, 0, 0, 0}, []byte{148, 4, 0, 0},
			[]byte{7, 7, 4, 0, 0, 0, 0, 0}, []byte{68, 8, 9, 0x10, 0, 0, 0, 0},
			append([]byte{131, 11, 4}, append(route, 0)...), append([]byte{137, 11, 4}, append(route, 0)...),
			[]byte{7, 200, 4, 0}, []byte{7, 0, 0, 0}, g.bytes(4), g.bytes(40))
		p.frame = h.build()
	}},
	{"4 total length", func(g *generator, p *packet) {
		h := g.head4(p)
		full := 20 + len(h.payload)
		h.total = one(g, full-1, full+1, full/2, 0, 1, 19, 20, 21, 28, full+100, 65535)
		p.ordinary = h.total >= 20 && h.total <= full
		if h.proto == 1 {
			p.flow = flowInner
		}
		p.frame = h.build()
	}},
	{"4 trailing bytes", func(g *generator, p *packet) {
		h := g.head4(p)
		h.trailing = g.bytes(one(g, 1, 2, 4, 18, 100))
		p.frame = h.build()
	}},
	{"4 truncated", func(g *generator, p *packet) {
		h := g.head4(p)
		p.ordinary = false
		f := h.build()
		p.frame = f[:14+g.IntN(min(len(f)-14, 64))]
	}},
	{"4 version or header length", func(g *generator, p *packet) {
		h := g.head4(p)
		p.ordinary = false
		if g.chance(2) {
			h.version = g.IntN(16)
		} else {
			h.ihl = g.IntN(16)
		}
		p.frame = h.build()
	}},
	{"4 around the MTU", func(g *generator, p *packet) {
		h := g.head4(p)
		size := one(g, 552, 576, 1000, 1280, 1300, 1400, 1450, 1499, 1500) + g.IntN(3) - 1
		h.proto, h.payload = 17, g.bytes(min(size, g.room[p.port])-20)
		p.flow = flowPorts
		h.frag = one[uint16](g, 0, 0x4000)
		p.frame = h.build()
	}},
	{"4 fragments", func(g *generator, p *packet) {
		h := g.head4(p)
		offset := one(g, 1, 2, 100, 185, 8191, 1+g.IntN(8190))
		h.frag = one(g, 0x2000, 0x2000|uint16(offset), uint16(offset), 0x6000, 0x4000|uint16(offset), 0x8000, 0xe000)
		if g.chance(2) {
			h.payload = g.bytes(one(g, 0, 1, 3, 4, 7, 8, 16))
		}
		p.flow = max(p.flow, flowAddresses)
		if h.proto == 1 { // the ICMP type, which says whether the packet is about another one, may be missing
			p.flow = flowInner
		}
		p.frame = h.build()
	}},
	{"4 special destination", func(g *generator, p *packet) {
		h := g.head4(p)
		n := g.IntN(ports)
		h.dst = one(g, addr4(10, 1, n, 1), addr4(10, 1, n, 255), addr4(10, 1, n, 0), addr4(255, 255, 255, 255),
			addr4(224, 0, 0, 1), addr4(224, 0, 1, 1), addr4(239, 1, 2, 3), addr4(127, 0, 0, 1), addr4(127, 255, 255, 255),
			addr4(0, 0, 0, 0), addr4(0, 1, 2, 3), addr4(240, 0, 0, 1), addr4(255, 255, 255, 254), addr4(169, 254, 1, 1),
			addr4(192, 88, 99, 1))
		p.ordinary = false
		p.frame = h.build()
	}},
	{"4 no neighbor", func(g *generator, p *packet) {
		h := g.head4(p)
		h.dst = addr4(10, 1, g.IntN(ports), 100+g.IntN(4))
		p.frame = h.build()
	}},
	{"4 no route", func(g *generator, p *packet) {
		h := g.head4(p)
		h.dst = g.stranger(false)
		p.frame = h.build()
	}},
	{"4 special source", func(g *generator, p *packet) {
		h := g.head4(p)
		n := g.IntN(ports)
		h.src = one(g, addr4(10, 1, n, 1), addr4(10, 1, n, 255), addr4(10, 1, n, 0), addr4(10, 1, n, 77),
			addr4(255, 255, 255, 255), addr4(224, 0, 0, 1), addr4(239, 1, 2, 3), addr4(127, 0, 0, 1), addr4(0, 0, 0, 0),
			addr4(0, 1, 2, 3), addr4(240, 0, 0, 1), addr4(255, 255, 255, 254), addr4(169, 254, 1, 1), g.stranger(false), h.dst)
		p.ordinary = false
		p.frame = h.build()
	}},
	{"4 unicast up to its edges", func(g *generator, p *packet) {
		h := g.head4(p)
		edge := one(g, addr4(223, 255, 255, 255), addr4(1, 0, 0, 0), addr4(126, 255, 255, 255), addr4(128, 0, 0, 0))
		if g.chance(2) {
			h.src = edge
		} else {
			h.dst = edge
		}
		p.frame = h.build()
	}},
	{"4 any source", func(g *generator, p *packet) {
		h := g.head4(p)
		if a := g.table.pick(g, false); a.IsValid() {
			h.src = a
		}
		p.frame = h.build()
	}},
	{"4 sent elsewhere", func(g *generator, p *packet) {
		h := g.head4(p)
		other := hostMAC((p.port+1)%ports, 1)
		h.mac = one(g, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, []byte{1, 0, 0x5e, 0, 0, 1}, []byte{3, 0, 0, 0, 1, byte(p.port)},
			hostMACOf((p.port+1)%ports), other[:], []byte{0, 0, 0, 0, 0, 0})
		p.frame = h.build()
	}},
	{"4 back where it came from", func(g *generator, p *packet) {
		h := g.head4(p)
		h.dst = g.neighbor(p.port, false)
		h.src = one(g, g.neighbor(p.port, false), g.src(p.port, false))
		p.frame = h.build()
	}},
	{"4 tagged", func(g *generator, p *packet) {
		h := g.head4(p)
		p.ordinary = false
		outer := one[uint16](g, 0, 1, 100, 4095, 0x6000, 0x1001)
		h.l2 = binary.BigEndian.AppendUint16(nil, outer)
		inner := one[uint16](g, 0x0800, 0x0800, 0x8100, 0x88a8, 0x0806)
		h.l2 = binary.BigEndian.AppendUint16(h.l2, inner)
		if inner == 0x8100 || inner == 0x88a8 {
			h.l2 = append(h.l2, 0, byte(g.IntN(3)), 8, 0)
		}
		p.frame = h.build()
		if g.chance(3) {
			p.frame[12], p.frame[13] = 0x88, 0xa8
		}
	}},
	{"not IP", func(g *generator, p *packet) {
		rest := g.bytes(one(g, 0, 1, 20, 46, 100))
		p.frame = ether(p.port, nil, one[uint16](g, 0x88cc, 0x8847, 0x8863, 0x8864, 0x9000, 0x0026, 0x05dc, 0x86de, 0x0801, 0, 0xffff), rest)
	}},
	{"one family's frame, the other's packet", func(g *generator, p *packet) {
		if g.chance(2) {
			p.frame = g.head4(p).build()
			binary.BigEndian.PutUint16(p.frame[12:], 0x86dd)
		} else {
			p.frame = g.head6(p).build()
			binary.BigEndian.PutUint16(p.frame[12:], 0x0800)
		}
		p.ordinary = false
	}},
}
