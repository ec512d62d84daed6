// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"encoding/binary"
	"math"
	"net"
	"net/netip"

	"culvert/internal/bench/load"
	"culvert/internal/scion/scionpkt"
)

const (
	// frameLen is the length of frames in scenario lb, bytes without the frame check sequence: that of a TCP
	// acknowledgement with timestamps.
	frameLen = 66
	// clients and backendCount are how many there are, as published for other balancers.
	clients      = 1000
	backendCount = 100
	// million is a large table of flows.
	million = 1_000_000
	// endless is as many flows as there are sources: none comes twice.
	endless = math.MaxUint32
)

// vip4 is the service whose packets are balanced, and vip6 that of IPv6.
var (
	vip4 = netip.MustParseAddrPort("192.0.2.1:80")
	vip6 = netip.MustParseAddrPort("[2001:db8::1]:80")
)

// The networks of the wires, which are for benchmarks (RFC 2544, appendix C). The first address of each is the
// balancer's. Clients are behind the second one of netIn.
var (
	netIn  = netip.MustParsePrefix("198.18.0.0/24")
	netOut = netip.MustParsePrefix("198.19.0.0/24")
)

// backendAddr is the address of a backend, a neighbor of the balancer, and backendMAC that of its interface.
func backendAddr(n int) netip.Addr {
	const first = 101
	a := netOut.Addr().As4()
	a[3] = byte(first + n)
	return netip.AddrFrom4(a)
}

// backendAddr6 is the address of a backend in IPv6.
func backendAddr6(n int) netip.Addr {
	a := netip.MustParseAddr("2001:db8:b::").As16()
	a[15] = byte(1 + n)
	return netip.AddrFrom16(a)
}

func backendMAC(n int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 1, byte(n)} }

// clientAddr is the source of a flow, the same that the generator makes for GeneratorOptions.Vary.
func clientAddr(flow uint32) netip.AddrPort {
	spread := flow * benchVarySpread
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(spread >> 16), byte(spread >> 8), byte(spread)}), 0x8000|uint16(spread>>24))
}

// clientAddr6 is the same in IPv6, where the generator makes none.
func clientAddr6(flow uint32) netip.AddrPort {
	c := clientAddr(flow)
	a, from := netip.MustParseAddr("2001:db8:c::").As16(), c.Addr().As4()
	copy(a[12:], from[:])
	return netip.AddrPortFrom(netip.AddrFrom16(a), c.Port())
}

// benchVarySpread is VARY_SPREAD of bpf/bench/vary.h.
const benchVarySpread = 2654435761

// ackFlag is that of TCP (RFC 9293, 3.1).
const ackFlag = 0x10

// Options of TCP as most systems send them: of a SYN the longest segment, selective acknowledgements and the window's
// scale, of others a time (RFC 9293, RFC 2018, RFC 7323).
var (
	synOptions = []byte{load.MSSOption, load.MSSLen, 5, 180, 4, 2, 1, 1, 1, 3, 3, 7}
	ackOptions = []byte{1, 1, 8, 10, 0, 0, 16, 0, 0, 0, 32, 0}
)

// makePacket is a SYN of a flow to the service of the client's family, or an acknowledgement without data, with right
// checksums and without Ethernet addresses.
func makePacket(client netip.AddrPort, syn bool) []byte {
	f, addrs := header(client.Addr())
	ip := f[scionpkt.EthernetLen:]
	tcp := ip[len(ip)-tcpLen:]
	binary.BigEndian.PutUint16(tcp[0:], client.Port())
	binary.BigEndian.PutUint16(tcp[2:], vip4.Port())
	const begin = 1 << 20
	binary.BigEndian.PutUint32(tcp[4:], begin)
	tcp[12] = byte(len(tcp) / 4 << 4)
	binary.BigEndian.PutUint16(tcp[14:], load.SYNWindow)
	const fixed = 20
	if tcp[13] = load.SYNFlag; syn {
		copy(tcp[fixed:], synOptions)
	} else {
		tcp[13] = ackFlag
		binary.BigEndian.PutUint32(tcp[4:], begin+1)
		binary.BigEndian.PutUint32(tcp[8:], begin)
		copy(tcp[fixed:], ackOptions)
	}
	pseudo := append(append([]byte(nil), addrs...), 0, load.ProtoTCP, 0, byte(len(tcp)))
	binary.BigEndian.PutUint16(tcp[16:], ^load.OnesSum(append(pseudo, tcp...)))
	return f
}

// tcpLen is the length of TCP's header with options.
const tcpLen = 32

// header is a packet to the service with nothing behind the IP header, and its addresses.
func header(client netip.Addr) (f, addrs []byte) {
	if client.Is4() {
		f = make([]byte, scionpkt.EthernetLen+scionpkt.IPv4Len+tcpLen)
		binary.BigEndian.PutUint16(f[12:], scionpkt.EtherTypeIPv4)
		ip := f[scionpkt.EthernetLen:]
		ip[0], ip[6], ip[8], ip[9] = 0x45, 0x40, 64, load.ProtoTCP
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		copy(ip[12:16], client.AsSlice())
		copy(ip[16:20], vip4.Addr().AsSlice())
		binary.BigEndian.PutUint16(ip[10:], ^load.OnesSum(ip[:scionpkt.IPv4Len]))
		return f, ip[12:20]
	}
	f = make([]byte, scionpkt.EthernetLen+scionpkt.IPv6Len+tcpLen)
	binary.BigEndian.PutUint16(f[12:], scionpkt.EtherTypeIPv6)
	ip := f[scionpkt.EthernetLen:]
	ip[0], ip[5], ip[6], ip[7] = 0x60, tcpLen, load.ProtoTCP, 64
	copy(ip[8:24], client.AsSlice())
	copy(ip[24:40], vip6.Addr().AsSlice())
	return f, ip[8:40]
}

// makePackets is a packet of each of so many flows.
func makePackets(flows int, syn bool) [][]byte {
	frames := make([][]byte, flows)
	for i := range frames {
		frames[i] = makePacket(clientAddr(uint32(i)), syn)
	}
	return frames
}
