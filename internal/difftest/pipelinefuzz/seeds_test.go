// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"

	"culvert/internal/scion/scionpkt"
)

// packet describes a frame. trial sets lengths and checksums.
type packet struct {
	in       int // device
	tags     []uint16
	src, dst string
	proto    byte
	ttl      byte     // 64 if 0
	body     []byte   // with transport header
	options  []byte   // of IPv4
	ext      [][]byte // extension headers of IPv6, without the number of the next one; their own in front
	frag     uint16   // of IPv4: the whole word
	pad      int      // bytes behind the packet
	first    int      // bytes in the first buffer
	group    bool     // the source of the frame is a group address
}

func (p packet) v6() bool { return addr(p.dst).Is6() }

// trial builds the frame, addressed to a device of the network.
func (p packet) trial(n *scionpkt.Network) trial {
	f := slices.Concat(n.Devices[p.in].MAC[:], []byte{2, 0, 0, 0, 0, 0x77})
	if p.group {
		f[6] |= 1
	}
	for _, tag := range p.tags {
		f = be.AppendUint16(be.AppendUint16(f, typeVLAN), tag)
	}
	ttl := p.ttl
	if ttl == 0 {
		ttl = 64
	}
	src, dst := addr(p.src).AsSlice(), addr(p.dst).AsSlice()
	if p.v6() {
		f = be.AppendUint16(f, typeIPv6)
		next, chain := p.proto, []byte(nil)
		for _, e := range slices.Backward(p.ext) {
			chain = append(append([]byte{next}, e[1:]...), chain...)
			next = e[0]
		}
		f = be.AppendUint16(append(f, 0x60, 0, 0, 1), uint16(len(chain)+len(p.body)))
		f = slices.Concat(append(f, next, ttl), src, dst, chain, p.body)
	} else {
		f = be.AppendUint16(f, typeIPv4)
		l3 := len(f)
		f = be.AppendUint16(append(f, byte(0x45+len(p.options)/4), 0), uint16(20+len(p.options)+len(p.body)))
		f = be.AppendUint16(append(f, 0x12, 0x34), p.frag)
		f = slices.Concat(append(f, ttl, p.proto, 0, 0), src, dst, p.options, p.body)
		be.PutUint16(f[l3+10:], ^sum(f[l3:l3+20+len(p.options)]))
	}
	f = append(f, bytes.Repeat([]byte{0xaa}, p.pad)...)
	fixTransport(f)
	return trial{frame: f, in: p.in, first: p.first}
}

// fixTransport fixes the checksum of the transport header after the IP header, or after a fragment header.
func fixTransport(f []byte) {
	v := decode(f)
	at := map[byte]int{protoTCP: 16, protoUDP: 6, protoICMP: 2, protoICMPv6: 2}[v.l4proto]
	if v.ip == 0 || at == 0 || v.later || len(v.packet) < v.l4+at+2 {
		return
	}
	body := v.packet[v.l4:]
	body[at], body[at+1] = 0, 0
	check := ^v.transportSum()
	if check == 0 && v.l4proto == protoUDP {
		check = 0xffff
	}
	be.PutUint16(body[at:], check)
}

// fixIP fixes the length and the checksum of the IP header, if there is one.
func fixIP(f []byte) {
	v := decode(f)
	b := f[min(v.l3, len(f)):]
	switch {
	case v.kind == typeIPv4 && len(b) >= 20:
		if size := int(be.Uint16(b[2:])); size < 20 || size > len(b) {
			be.PutUint16(b[2:], uint16(len(b)))
		}
		head := min(max(int(b[0]&15)*4, 20), len(b))
		b[10], b[11] = 0, 0
		be.PutUint16(b[10:], ^sum(b[:head]))
	case v.kind == typeIPv6 && len(b) >= 40 && 40+int(be.Uint16(b[4:])) > len(b):
		be.PutUint16(b[4:], uint16(len(b)-40))
	}
}

func tcp(sport, dport uint16, flags byte, data []byte, options ...byte) []byte {
	b := be.AppendUint16(be.AppendUint16(nil, sport), dport)
	b = append(b, 1, 2, 3, 4, 5, 6, 7, 8, byte(5+len(options)/4)<<4, flags, 0x20, 0, 0, 0, 0, 0)
	return slices.Concat(b, options, data)
}

func udp(sport, dport uint16, data []byte) []byte {
	b := be.AppendUint16(be.AppendUint16(nil, sport), dport)
	return append(append(be.AppendUint16(b, uint16(8+len(data))), 0, 0), data...)
}

func icmp(typ, code byte, word uint32, data []byte) []byte {
	return append(be.AppendUint32([]byte{typ, code, 0, 0}, word), data...)
}

// quoted returns an IP packet as ICMP errors quote it.
func quoted(n *scionpkt.Network, p packet) []byte {
	t := p.trial(n)
	return t.frame[14:min(len(t.frame), 14+100)]
}

func quicShort() []byte { return append([]byte{0x40, 2<<5 | 9, 7, 8}, make([]byte, 30)...) }

func quicLong() []byte {
	return append([]byte{0xe0, 0, 0, 0, 1, 6, 2<<5 | 9, 7, 8, 1, 2, 3, 0}, make([]byte, 40)...)
}

// seed is a frame that must be counted under a reason.
type seed struct {
	reason string
	packet
}

const (
	from4 = "198.51.100.7"
	from6 = "2001:db8:9::7"
)

var pad8 = []byte{0, 0, 1, 4, 0, 0, 0, 0} // an extension header of 8 bytes; its first says what it is

// ext makes an extension header of a kind.
func ext(kind byte) []byte { return append([]byte{kind}, pad8[1:]...) }

func fragmentHeader(offset int, more bool) []byte {
	h := []byte{protoFragment, 0, byte(offset >> 8), byte(offset), 0, 0, 0, 9}
	if more {
		h[3] |= 1
	}
	return h
}

// seeds returns at least one frame for each reason that is not SCION's, of both families where possible.
func (b *bed) seeds() (all []seed) {
	n := b.net
	add := func(reason string, p packet) { all = append(all, seed{reason, p}) }
	big := make([]byte, 1470)
	mss := []byte{2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7}
	type family struct {
		from, plain, tagged, net, local, connected, kernel, vip, quic, vip5 string
		icmp, echo, unreachable, ttl                                        byte
	}
	for k, f := range []family{
		{from4, "203.0.113.10", "203.0.113.140", "203.0.113.%d", "192.0.2.77", "10.60.0.9", "100.64.0.5", "192.0.2.1", "192.0.2.1", "192.0.2.5", protoICMP, 8, 3, 11},
		{from6, "2001:db8:113::10", "2001:db8:113:8000::1", "2001:db8:113::%d", "2001:db8::77", "2001:db8:60::9", "2001:db8:6400::5", "2001:db8::1", "2001:db8::1", "2001:db8::5", protoICMPv6, 128, 1, 3},
	} {
		to := func(dst string) packet {
			return packet{src: f.from, dst: dst, proto: protoUDP, body: udp(40000, 2000, []byte("payload, long enough to fill a frame of Ethernet"))}
		}
		with := func(p packet, change func(*packet)) packet { change(&p); return p }
		body := func(dst string, proto byte, body []byte) packet {
			return packet{src: f.from, dst: dst, proto: proto, body: body}
		}
		last := func(d int) string { return fmt.Sprintf(f.net, d) }
		if b.on.route {
			add("fwd route", to(f.plain))
			add("fwd route", with(to(f.plain), func(p *packet) { p.pad = 9 }))
			add("fwd route", with(to(f.plain), func(p *packet) { p.body = udp(1, 2, nil); p.pad = 5 }))
			add("fwd route", to(f.tagged))
			add("fwd route", to(last(208)).ofDevice(1))
			add("pass route-redirect", to(last(208)))
			add("fwd route", to(f.connected))
			add("fwd route", body(f.plain, protoTCP, tcp(1, 2, 0x10, big[:400])))
			add("fwd route", with(body(last(207), protoUDP, udp(1, 2, make([]byte, 5000))), func(p *packet) { p.in = 1; p.body = p.body[:2000]; be.PutUint16(p.body[4:], 2000) }))
			add("fwd route", with(to(last(208)), func(p *packet) { p.in, p.body = 1, udp(1, 2, make([]byte, 6000)) }))
			add("pass route-egress", body(last(207), protoUDP, udp(1, 2, make([]byte, 6000))))
			add("fwd route-fib", to(f.kernel))
			add("pass route-local", to(f.local))
			add("pass route-egress", to(last(205)))
			add("drop route-blackhole", to(last(200)))
			add("punt route-unreachable", to(last(201)))
			add("punt route-prohibit", to(last(202)))
			add("punt route-none", to(last(203)))
			add("punt route-neighbor", to(last(204)))
			add("punt route-mtu", body(last(206), protoUDP, udp(1, 2, big[:700])))
			add("punt route-ttl", with(to(f.plain), func(p *packet) { p.ttl = 1 }))
			add("pass route-kernel", body(f.kernel, f.icmp, icmp(f.unreachable, 0, 0, big[:80])))
			add("pass route-off", with(to(f.plain), func(p *packet) { p.tags = []uint16{77} }))
			add("pass other", with(to(f.plain), func(p *packet) { p.tags = []uint16{5, 7} }))
			add("fwd route", body(f.plain, f.icmp, icmp(f.ttl, 0, 0, big[:80])))
		}
		if b.on.lb {
			client := func(port uint16, dst string, data []byte) packet {
				return body(dst, protoTCP, tcp(port, 80, 0x10, data))
			}
			add("fwd lb-new", body(f.vip, protoTCP, tcp(1000, 80, 2, nil)))
			add("fwd lb-flow", client(1000, f.vip, []byte("GET /")))
			add("fwd lb-flow", with(client(1000, f.vip, big[:100]), func(p *packet) { p.tags = []uint16{9 | 3<<13} }))
			add("fwd lb-flow", with(client(1000, f.vip, big[:1000]), func(p *packet) { p.first = 200 }))
			for port := range uint16(40) {
				add("", client(3000+port, f.vip, big[:1000+10*port]))
				add("", client(3000+port, f.vip, make([]byte, 4000)))
				add("", body(f.vip, protoUDP, udp(3000+port, 1+port, big[:10*port])))
				add("", client(3000+port, "192.0.2.4", nil).ifSame(f.from))
			}
			add("fwd lb-quic", body(f.quic, protoUDP, udp(5000, 443, quicShort())))
			add("fwd lb-quic", body(f.quic, protoUDP, udp(5001, 443, quicLong())))
			add("fwd lb-echo", body(f.vip, f.icmp, icmp(f.echo, 0, 7<<16|1, []byte("abcdefgh"))))
			add("fwd lb-echo", with(body(f.vip, f.icmp, icmp(f.echo, 0, 7<<16|1, []byte("abcdefghi"))), func(p *packet) { p.pad, p.tags = 3, []uint16{30} }))
			add("fwd lb-icmp", body(f.vip, f.icmp, icmp(f.unreachable, 1, 0, quoted(n, packet{src: f.vip, dst: f.from, proto: protoTCP, body: tcp(80, 1000, 0x10, big[:100])}))))
			// What no VIP takes, and what the kernel would send on.
			vip6 := map[int]string{0: "192.0.2.6", 1: "2001:db8::6"}[k]
			add("fwd lb-unreachable", client(1000, f.vip5, big[:100]))
			add("fwd lb-unreachable", body(f.vip5, protoUDP, udp(1000, 54, big[:1399])))
			add("drop lb-unclaimed", with(client(1000, f.vip5, big[:100]), func(p *packet) { p.group = true }))
			add("", with(body(f.vip, f.icmp, icmp(f.echo, 0, 7<<16|1, []byte("abcdefgh"))), func(p *packet) { p.group = true }))
			add("fwd lb-unreachable", body(f.vip5, 50, big[:40]))
			add("fwd lb-unreachable", with(client(1000, f.vip5, nil), func(p *packet) { p.tags, p.pad = []uint16{vlanHost}, 6 }))
			add("drop lb-unclaimed", body(f.vip5, f.icmp, icmp(f.unreachable, 0, 0, big[:80])))
			add("drop lb-unclaimed", with(client(1000, f.vip5, nil), func(p *packet) { p.src = map[int]string{0: "127.0.0.1", 1: "::"}[k] }))
			add("pass other", with(client(1000, "192.0.2.4", nil).ifSame(f.from), func(p *packet) { p.in, p.tags = 1, []uint16{vlanHost, 7} }))
			add("drop lb-empty", client(1000, vip6, nil))
			add("drop lb-empty", body(vip6, f.icmp, icmp(f.unreachable, 0, 0, quoted(n, packet{src: vip6, dst: f.from, proto: protoTCP, body: tcp(80, 1000, 0x10, big[:100])}))))
			for port := range uint16(8) {
				add("", body(vip6, protoUDP, udp(3000, 1+port, big[:10])))
			}
			// Segments that do not move a flow.
			for _, flags := range []byte{0x11, 0x04, 0x14, 0x02, 0x10, 0x12} {
				add("fwd lb-flow", body(f.vip, protoTCP, tcp(1000, 80, flags, nil)))
			}
			add("fwd lb-echo", body(f.vip, f.icmp, icmp(f.echo, 0, 0, nil)))
			if k == 0 {
				add("", with(client(1000, vlanVIP.String(), nil), func(p *packet) { p.tags = []uint16{vlanNamed} }))
				add("punt lb-headers", with(client(1000, f.vip, nil), func(p *packet) { p.options = []byte{148, 4, 0, 0} }))
				add("", with(body(f.vip5, protoUDP, udp(6000, 53, big[:600])), func(p *packet) { p.frag = 0x2000 }))
				add("fwd lb-fragment", packet{src: f.from, dst: f.vip5, proto: protoUDP, body: big[:200], frag: 75})
				add("drop lb-fragment", packet{src: "198.51.100.8", dst: f.vip5, proto: protoUDP, body: big[:200], frag: 75})
				add("pass lb-empty", client(1000, "192.0.2.2", nil))
				add("drop lb-next-hop", client(1000, "192.0.2.3", nil))
			} else {
				add("punt lb-headers", with(client(1000, f.vip, nil), func(p *packet) { p.ext = [][]byte{ext(0)} }))
				add("punt lb-headers", with(client(1000, f.vip, nil), func(p *packet) { p.ext = [][]byte{ext(60)} }))
				add("", with(body(f.vip5, protoUDP, udp(6000, 53, big[:600])), func(p *packet) { p.ext = [][]byte{fragmentHeader(0, true)} }))
				add("fwd lb-fragment", packet{src: f.from, dst: f.vip5, proto: protoUDP, body: big[:200], ext: [][]byte{fragmentHeader(608, false)}})
				// The next header of the first fragment counts alone (RFC 8200, 4.5).
				add("fwd lb-fragment", packet{src: f.from, dst: f.vip5, proto: protoTCP, body: big[:200], ext: [][]byte{fragmentHeader(608, false)}})
				add("drop lb-fragment", packet{src: "2001:db8:9::8", dst: f.vip5, proto: protoUDP, body: big[:200], ext: [][]byte{fragmentHeader(608, false)}})
				add("fwd lb-icmp", body(f.vip, f.icmp, icmp(2, 0, 1400, quoted(n, packet{src: f.vip, dst: f.from, proto: protoTCP, body: tcp(80, 1000, 0x10, big[:100]), ext: [][]byte{fragmentHeader(0, true)}}))))
			}
		}
		if b.on.filter {
			// Tags of VLAN 0 in front of what a rule drops, and more tags and headers than are looked behind.
			bad := func(p *packet) { p.src = map[int]string{0: "198.51.100.66", 1: "2001:db8:9::66"}[k] }
			for _, tags := range [][]uint16{{0}, {0, 0, 0}, {5, 0}, {0, 5 | 1<<13, 0, 7}, {0, 0, 0, 0, 0, 0, 0, 7 << 13}} {
				add("drop filter", with(to(f.plain), func(p *packet) { bad(p); p.tags = tags }))
				add("", with(to(f.plain), func(p *packet) { p.tags = tags }))
			}
			add("drop filter-tags", with(to(f.plain), func(p *packet) { p.tags = []uint16{1, 2, 3} }))
			add("drop filter-tags", with(to(f.plain), func(p *packet) { p.tags = make([]uint16, 9) }))
			add("drop filter-tags", with(to(f.plain), func(p *packet) { p.tags, p.first = []uint16{0, 0}, 16 }))
			add("drop filter-headers", with(to(f.plain), func(p *packet) { p.first = 20 }))
			if k == 1 {
				add("drop filter-headers", with(to(f.plain), func(p *packet) { p.ext = slices.Repeat([][]byte{ext(60)}, 9) }))
			}
			add("drop filter", body(f.plain, 132, make([]byte, 40)))
			add("drop filter", with(to(f.plain), func(p *packet) { p.src = map[int]string{0: "198.51.100.66", 1: "2001:db8:9::66"}[k] }))
			add("drop filter", with(to(f.plain), func(p *packet) {
				p.tags = []uint16{5, 7}
				p.src = map[int]string{0: "198.51.100.66", 1: "2001:db8:bad::1"}[k]
			}))
			add("drop filter", body(f.plain, protoUDP, udp(1, 5353, make([]byte, 3100))))
			add("drop filter", with(body(f.plain, protoUDP, udp(1, 5354, bytes.Repeat([]byte{0x5a}, 1200))), func(p *packet) { p.first = 300 }))
			add("drop filter", body(last(7), protoTCP, tcp(1, 7, 0x10, nil)))
			add("drop filter", with(to(f.plain), func(p *packet) { p.tags = []uint16{666} }))
			add("", body(f.plain, protoUDP, udp(4789, 132, nil)))
			add("", body(f.plain, protoUDP, udp(1, 9, nil)))
			add("drop filter-limit", body(f.plain, protoUDP, udp(1, 9, nil)))
			add("fwd filter-synack", packet{src: f.from, dst: map[int]string{0: "198.18.0.1", 1: "2001:db8:18::1"}[k], proto: protoTCP, body: tcp(1000, 80, 2, nil, mss...)})
			add("fwd filter-synack", packet{src: f.from, dst: map[int]string{0: "198.18.0.1", 1: "2001:db8:18::1"}[k], proto: protoTCP, body: tcp(1000, 80, 2, nil), pad: 7})
			add("drop filter-cookie", packet{src: f.from, dst: map[int]string{0: "198.18.0.1", 1: "2001:db8:18::1"}[k], proto: protoTCP, body: tcp(1000, 80, 2, nil), group: true})
		}
	}
	if b.on.route {
		add("punt route-malformed", packet{src: from4, dst: "203.0.113.10", proto: protoUDP, body: udp(1, 2, nil)}.broken(24))
		add("punt route-options", packet{src: from4, dst: "203.0.113.10", proto: protoUDP, body: udp(1, 2, nil), options: []byte{1, 1, 1, 0}})
		add("punt route-options", packet{src: from6, dst: "2001:db8:113::10", proto: protoUDP, body: udp(1, 2, nil), ext: [][]byte{ext(0)}})
		add("fwd route", packet{src: from6, dst: "2001:db8:113::10", proto: protoUDP, body: udp(1, 2, nil), ext: [][]byte{ext(60), ext(43), ext(60), ext(60), ext(60), ext(60), ext(60), ext(60)}})
		add("fwd route", packet{src: from4, dst: "203.0.113.10", proto: protoUDP, body: make([]byte, 100), frag: 0x2010})
		add("fwd route", packet{src: from4, dst: "203.0.113.10", proto: protoUDP, body: udp(1, 2, nil), tags: []uint16{vlanIn}})
		add("punt route-martian", packet{src: "127.0.0.1", dst: "203.0.113.10", proto: protoUDP, body: udp(1, 2, nil)})
		add("punt route-martian", packet{src: "192.0.2.1", dst: "203.0.113.10", proto: protoUDP, body: udp(1, 2, nil)})
		add("punt route-multicast", packet{src: from4, dst: "224.0.0.5", proto: 89, body: make([]byte, 44)})
		add("punt route-multicast", packet{src: from6, dst: "ff02::5", proto: 89, body: make([]byte, 44)})
		add("punt route-source", packet{in: strictPort, src: "203.0.113.10", dst: "203.0.113.11", proto: protoUDP, body: udp(1, 2, nil)})
		add("fwd route", packet{in: loosePort, src: "203.0.113.10", dst: "203.0.113.11", proto: protoUDP, body: udp(1, 2, nil)})
		for _, dst := range []string{"100.65.0.1", "2001:db8:6500::1"} {
			src := from4
			if addr(dst).Is6() {
				src = from6
			}
			add("drop route-blackhole", packet{src: src, dst: dst, proto: protoUDP, body: udp(1, 2, nil)})
		}
		add("punt route-unreachable", packet{src: from4, dst: "100.66.0.1", proto: protoUDP, body: udp(1, 2, nil)})
		add("punt route-neighbor", packet{src: from4, dst: "100.68.0.1", proto: protoUDP, body: udp(1, 2, nil)})
	}
	if b.on.filter {
		add("drop filter", packet{src: from4, dst: "203.0.113.10", proto: protoICMP, body: icmp(13, 0, 1, make([]byte, 12))})
		add("drop filter", packet{src: from4, dst: "203.0.113.10", proto: protoUDP, body: udp(1, 2, nil), frag: 0x8000})
		add("drop filter", packet{in: 1, src: from4, dst: "203.0.113.10", proto: protoUDP, body: udp(1, 11, nil)})
		add("fwd filter-synack", packet{src: from4, dst: "198.18.0.2", proto: protoTCP, body: tcp(1000, 8080, 2, nil, mss...)})
		add("drop filter-cookie", packet{src: from4, dst: "198.18.0.2", proto: protoTCP, body: tcp(1001, 8080, 0x10, nil)})
	}
	return all
}

// ofDevice makes a packet come in by another device.
func (p packet) ofDevice(n int) packet { p.in = n; return p }

// ifSame replaces a packet of the other family by one to the sender's own address.
func (p packet) ifSame(from string) packet {
	if addr(from).Is4() == addr(p.dst).Is4() {
		return p
	}
	p.dst = "2001:db8::1"
	return p
}

// broken adds one byte of options, which the header length cannot express, so that length and checksum of the IPv4 header are wrong.
func (p packet) broken(int) packet { p.options = []byte{0xff}; return p }

// scionFrame makes a packet for the SCION router. Half of the packets are damaged.
func (b *bed) scionFrame(rng *rand.Rand) (trial, bool) {
	s := scionpkt.Random(rng, b.net)
	kind := rng.IntN(3)
	if kind == 1 {
		s, _ = scionpkt.Distort(rng, b.net, s)
	}
	f, err := s.Build()
	if err != nil {
		return trial{}, false
	}
	if kind == 2 {
		f, _ = scionpkt.Mutate(rng, f)
	}
	// These are packets that the generator makes rarely or never: BFD on an empty path, and host addresses of other types.
	if l, ok := scionpkt.Locate(f); ok && rng.IntN(50) == 0 && len(f) > l.SCION+9 {
		switch rng.IntN(3) {
		case 0:
			// Half of them are of the link's session.
			asBFD(f, l, s.Link, rng.IntN(2) == 0)
		case 1:
			f[l.SCION+9] = f[l.SCION+9]&0xf0 | 4 // a service
		case 2:
			f[l.SCION+9] = f[l.SCION+9]&0xf0 | 8 // of no type
		}
	}
	in := b.net.Links[s.Link].Device
	// Some come by another interface, addressed to it.
	if rng.IntN(60) == 0 && len(f) >= 14 {
		return b.astray(trial{frame: f, in: in}), true
	}
	tr := trial{frame: f, in: in}
	if len(f) > 400 && len(f)%20 == 0 {
		tr.first = len(f) - 8 // with all headers, if it has headers
	}
	return tr, len(f) >= 14
}

// asBFD turns a packet of a link into BFD on an empty path, with the discriminator of the link's session or an arbitrary one.
func asBFD(f []byte, l scionpkt.Layout, link int, own bool) {
	f[l.SCION+4], f[l.SCION+8] = 203, 0
	if bfd := l.SCION + 4*int(f[l.SCION+5]); own && len(f) >= bfd+12 {
		be.PutUint32(f[bfd+8:], bfdOwn(link))
	}
}

// astray makes a frame come in by another device, addressed to it.
func (b *bed) astray(tr trial) trial {
	tr.in = (tr.in + 1) % len(b.net.Devices)
	tr.frame = bytes.Clone(tr.frame)
	copy(tr.frame, b.net.Devices[tr.in].MAC[:])
	return tr
}
