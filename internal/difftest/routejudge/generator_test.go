// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
)

// packet is one packet for both routers.
type packet struct {
	kind  string
	id    uint16 // number by which its outputs are found
	port  int    // the port by which it comes in
	frame []byte
	// src and dst are its addresses, if it has any.
	src, dst netip.Addr
	// ordinary says that the fast path must forward the packet if the kernel forwards it without changes that only it can do.
	ordinary bool
	flow     flow
}

// flow says which fields of a packet the kernel may need to choose among paths.
type flow int

const (
	flowNone      flow = iota - 1
	flowPorts          // ports of TCP and UDP
	flowAddresses      // addresses, for packets or fragments without ports
	flowInner          // fields of a quoted packet, or behind extension headers
)

// generator makes packets and tables. Generators with equal seeds make the same ones.
type generator struct {
	*rand.Rand
	next  uint16
	table *table
	// room is the size of the largest packet that each port accepts.
	room [ports]int
	// src and dst return addresses for a packet that comes in by a port. Kinds may replace them.
	src, dst func(port int, v6 bool) netip.Addr
}

func newGenerator(seed uint64) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0xc0ffee)), table: &table{ids: []int{mainTable}}, room: mtus}
	g.src, g.dst = g.sources, g.destinations
	return g
}

// start makes a packet without a frame.
func (g *generator) start(kind string, port int) *packet {
	g.next++
	if g.next >= 60000 {
		g.next = 1
	}
	return &packet{kind: kind, id: g.next, port: port}
}

func one[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

func (g *generator) chance(in int) bool { return g.IntN(in) == 0 }

func (g *generator) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

func host4(port, n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(port), byte(n)}) }

func host6(port, n int) netip.Addr {
	a := [16]byte{0: 0xfd, 3: 1, 5: byte(port)}
	binary.BigEndian.PutUint16(a[14:], uint16(n))
	return netip.AddrFrom16(a)
}

// local6 returns a link-local address on a port's network. Host 1 is the router.
func local6(port, n int) netip.Addr {
	a := [16]byte{0: 0xfe, 1: 0x80, 13: byte(port)}
	binary.BigEndian.PutUint16(a[14:], uint16(n))
	return netip.AddrFrom16(a)
}

func (g *generator) host() int { return firstHost + g.IntN(lastHost-firstHost+1) }

// neighbor returns the address of a host on a port's network.
func (g *generator) neighbor(port int, v6 bool) netip.Addr {
	if v6 {
		return host6(port, g.host())
	}
	return host4(port, g.host())
}

// sources returns a usual source of packets that come in by a port.
func (g *generator) sources(port int, v6 bool) netip.Addr {
	if g.IntN(3) > 0 {
		return g.neighbor(port, v6)
	}
	if a := g.table.pick(g, v6); a.IsValid() && a.IsGlobalUnicast() {
		return a
	}
	return g.neighbor(g.IntN(ports), v6)
}

// destinations returns an address in, at an edge of or next to a prefix of the table, or the address of a host.
func (g *generator) destinations(port int, v6 bool) netip.Addr {
	if a := g.table.pick(g, v6); a.IsValid() && !g.chance(8) {
		return a
	}
	return g.neighbor((port+1+g.IntN(ports-1))%ports, v6)
}

// ether prepends the Ethernet header. The destination is the port's address unless another is given.
func ether(port int, dst []byte, kind uint16, rest ...[]byte) []byte {
	if dst == nil {
		dst = hostMACOf(port)
	}
	src := hostMAC(port, firstHost)
	f := append(append([]byte(nil), dst...), src[:]...)
	f = binary.BigEndian.AppendUint16(f, kind)
	for _, r := range rest {
		f = append(f, r...)
	}
	return f
}

// head4 has the fields of an IPv4 packet to build.
type head4 struct {
	p                 *packet
	src, dst          netip.Addr
	tos, ttl, proto   byte
	frag              uint16
	options, payload  []byte
	version, ihl      int // -1: right
	total             int // -1: right
	sumError          uint16
	mac, trailing, l2 []byte
}

// head4 starts an ordinary packet.
func (g *generator) head4(p *packet) *head4 {
	p.ordinary, p.flow = true, flowPorts
	h := &head4{p: p, ttl: one[byte](g, 2, 3, 64, 64, 128, 255), version: -1, ihl: -1, total: -1}
	h.src, h.dst = g.src(p.port, false), g.dst(p.port, false)
	if g.chance(4) {
		h.tos = byte(g.Uint32())
	}
	if g.chance(2) {
		h.frag = 0x4000
	}
	h.proto, h.payload = g.transport(p, 4)
	return h
}

// packet returns the packet without an Ethernet header.
func (h *head4) packet() []byte {
	b := make([]byte, 20, 20+len(h.options)+len(h.payload))
	ihl, version, total := 5+len(h.options)/4, 4, 20+len(h.options)+len(h.payload)
	if h.ihl >= 0 {
		ihl = h.ihl
	}
	if h.version >= 0 {
		version = h.version
	}
	if h.total >= 0 {
		total = h.total
	}
	b[0] = byte(version<<4 | ihl&15)
	b[1] = h.tos
	binary.BigEndian.PutUint16(b[2:], uint16(total))
	binary.BigEndian.PutUint16(b[4:], h.p.id)
	binary.BigEndian.PutUint16(b[6:], h.frag)
	b[8], b[9] = h.ttl, h.proto
	src, dst := h.src.As4(), h.dst.As4()
	copy(b[12:], src[:])
	copy(b[16:], dst[:])
	b = append(append(b, h.options...), h.payload...)
	fixHeader(b[:min(len(b), max(20, ihl*4))])
	sum := binary.BigEndian.Uint16(b[10:])
	binary.BigEndian.PutUint16(b[10:], sum+h.sumError)
	return append(b, h.trailing...)
}

func (h *head4) build() []byte {
	h.p.src, h.p.dst = h.src, h.dst
	if h.l2 != nil {
		return ether(h.p.port, h.mac, 0x8100, h.l2, h.packet())
	}
	return ether(h.p.port, h.mac, 0x0800, h.packet())
}

// fixHeader sets the checksum of an IPv4 header.
func fixHeader(b []byte) {
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], ^sum16(b))
}

// sum16 returns the one's complement sum, which is the Internet checksum before inversion.
func sum16(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b)&^1; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)&1 != 0 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// head6 has the fields of an IPv6 packet to build.
type head6 struct {
	p             *packet
	src, dst      netip.Addr
	class, hops   byte
	next          byte
	flow          uint32 // the upper 4 bits of the flow label; the rest is the packet's number
	payload       []byte
	version       int // -1: right
	length        int // -1: right
	mac, trailing []byte
}

func (g *generator) head6(p *packet) *head6 {
	p.ordinary, p.flow = true, flowPorts
	h := &head6{p: p, hops: one[byte](g, 2, 3, 64, 64, 128, 255), version: -1, length: -1, flow: g.Uint32() & 15}
	h.src, h.dst = g.src(p.port, true), g.dst(p.port, true)
	if g.chance(4) {
		h.class = byte(g.Uint32())
	}
	h.next, h.payload = g.transport(p, 6)
	return h
}

func (h *head6) packet() []byte {
	b := make([]byte, 40, 40+len(h.payload))
	version, length := 6, len(h.payload)
	if h.version >= 0 {
		version = h.version
	}
	if h.length >= 0 {
		length = h.length
	}
	binary.BigEndian.PutUint32(b, uint32(version)<<28|uint32(h.class)<<20|h.flow<<16|uint32(h.p.id))
	binary.BigEndian.PutUint16(b[4:], uint16(length))
	b[6], b[7] = h.next, h.hops
	src, dst := h.src.As16(), h.dst.As16()
	copy(b[8:], src[:])
	copy(b[24:], dst[:])
	return append(append(b, h.payload...), h.trailing...)
}

func (h *head6) build() []byte {
	h.p.src, h.p.dst = h.src, h.dst
	return ether(h.p.port, h.mac, 0x86dd, h.packet())
}

// transport makes the payload of a packet. Its checksum is anything: routers do not look at it. The source port of
// TCP tells the packet's number, for the reset that might answer it.
func (g *generator) transport(p *packet, family int) (proto byte, payload []byte) {
	data := g.bytes(one(g, 0, 1, 2, 8, 9, 18, 19, 64, 200, 1000))
	ports := binary.BigEndian.AppendUint16(nil, p.id)
	ports = binary.BigEndian.AppendUint16(ports, one[uint16](g, 53, 80, 443, 30041, uint16(g.Uint32())))
	switch g.IntN(6) {
	case 0, 1:
		udp := binary.BigEndian.AppendUint16(ports, uint16(8+len(data)))
		return 17, append(append(udp, g.bytes(2)...), data...)
	case 2, 3:
		tcp := append(ports, g.bytes(8)...)
		tcp = append(append(tcp, 0x50, byte(g.Uint32())), g.bytes(6)...)
		return 6, append(tcp, data...)
	case 4:
		return g.icmp(p, family, data)
	}
	p.flow = flowAddresses
	if family == 6 && g.chance(8) {
		p.flow = flowInner // AH is an extension header
		return 51, append(g.bytes(8), data...)
	}
	return one[byte](g, 47, 50, 132, 136, 4, 41, 89, 115, 253, 255), append(g.bytes(8), data...)
}

// icmp makes echoes, and errors about packets that were never sent. No error changes a route or a neighbor of the router,
// since all of them quote packets between strangers.
func (g *generator) icmp(p *packet, family int, data []byte) (proto byte, payload []byte) {
	var inner []byte
	about := &packet{id: uint16(g.Uint32())}
	v6 := family == 6
	if v6 {
		proto, inner = 58, (&head6{p: about, src: g.stranger(v6), dst: g.stranger(v6), hops: 64, next: 17,
			payload: g.bytes(8), version: -1, length: -1}).packet()
	} else {
		proto, inner = 1, (&head4{p: about, src: g.stranger(v6), dst: g.stranger(v6), ttl: 64, proto: 17,
			payload: g.bytes(8), version: -1, ihl: -1, total: -1}).packet()
	}
	header := func(typ byte) []byte { return append([]byte{typ, byte(g.IntN(3))}, g.bytes(6)...) }
	echo, errors := []byte{8, 0}, []byte{3, 4, 11, 12}
	if v6 {
		echo, errors = []byte{128, 129}, []byte{1, 2, 3, 4}
	}
	p.flow = flowAddresses
	if g.chance(2) {
		b := append([]byte{one(g, echo...), 0}, g.bytes(2)...)
		b = binary.BigEndian.AppendUint16(b, p.id)
		return proto, append(append(b, g.bytes(2)...), data...)
	}
	p.flow = flowInner
	return proto, append(header(one(g, errors...)), inner...)
}

// stranger returns an address to which no table has a route.
func (g *generator) stranger(v6 bool) netip.Addr {
	if v6 {
		a := [16]byte{0: 0x3f, 1: 0xff}
		copy(a[4:], g.bytes(12))
		return netip.AddrFrom16(a)
	}
	b := g.bytes(2)
	return netip.AddrFrom4([4]byte{99, 99, b[0], b[1]})
}
