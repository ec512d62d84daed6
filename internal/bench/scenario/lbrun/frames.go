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
	// frameLen is the length of frames in scenario lb, in bytes without the frame check sequence. It is that of a TCP
	// acknowledgement with timestamps.
	frameLen = 66
	// clients and backendCount are the numbers of clients and backends, as in published measurements of other balancers.
	clients      = 1000
	backendCount = 100
	// million is the number of flows in a large flow table.
	million = 1_000_000
	// endless is the largest number of flows that the generator can make. In practice no flow is repeated.
	endless = math.MaxUint32
)

// vip4 and vip6 are the VIPs of the service.
var (
	vip4 = netip.MustParseAddrPort("192.0.2.1:80")
	vip6 = netip.MustParseAddrPort("[2001:db8::1]:80")
)

// The networks of the wires, which are for benchmarks (RFC 2544, appendix C). The first address of each is the balancer's. The
// second address of netIn is that of the router in front of the clients.
var (
	netIn  = netip.MustParsePrefix("198.18.0.0/24")
	netOut = netip.MustParsePrefix("198.19.0.0/24")
)

// backendAddr is the address of backend n, which is a neighbor of the balancer.
func backendAddr(n int) netip.Addr {
	const first = 101
	a := netOut.Addr().As4()
	a[3] = byte(first + n)
	return netip.AddrFrom4(a)
}

// backendAddr6 is the IPv6 address of backend n.
func backendAddr6(n int) netip.Addr {
	a := netip.MustParseAddr("2001:db8:b::").As16()
	a[15] = byte(1 + n)
	return netip.AddrFrom16(a)
}

// backendMAC is the Ethernet address of backend n.
func backendMAC(n int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 1, byte(n)} }

// clientAddr is the source of a flow. It is the same that a generator makes with load.GeneratorOptions.Vary.
func clientAddr(flow uint32) netip.AddrPort {
	spread := flow * benchVarySpread
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(spread >> 16), byte(spread >> 8), byte(spread)}), 0x8000|uint16(spread>>24))
}

// clientAddr6 is the source of a flow over IPv6. The generator does not make such sources.
func clientAddr6(flow uint32) netip.AddrPort {
	c := clientAddr(flow)
	a, from := netip.MustParseAddr("2001:db8:c::").As16(), c.Addr().As4()
	copy(a[12:], from[:])
	return netip.AddrPortFrom(netip.AddrFrom16(a), c.Port())
}

// benchVarySpread is VARY_SPREAD of bpf/bench/vary.h.
const benchVarySpread = 2654435761

// ackFlag is the flag ACK of TCP (RFC 9293, 3.1).
const ackFlag = 0x10

// TCP options as most systems send them (RFC 9293, RFC 2018, RFC 7323): maximum segment size, selective acknowledgement and
// window scale in a SYN, and a timestamp in other packets.
var (
	synOptions = []byte{load.MSSOption, load.MSSLen, 5, 180, 4, 2, 1, 1, 1, 3, 3, 7}
	ackOptions = []byte{1, 1, 8, 10, 0, 0, 16, 0, 0, 0, 32, 0}
)

// makePacket makes a SYN from a client to the VIP of its family, or an acknowledgement without data. Checksums are valid, and
// Ethernet addresses are not set.
func makePacket(client netip.AddrPort, syn bool) []byte {
	f, addrs := makeHeader(client.Addr())
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

// tcpLen is the length of the TCP header with options, in bytes.
const tcpLen = 32

// makeHeader makes a packet from a client to the VIP whose TCP header is all zero. It also returns the bytes of the packet's
// source and destination address.
func makeHeader(client netip.Addr) (f, addrs []byte) {
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

// makePackets makes one packet for each of a number of flows.
func makePackets(flows int, syn bool) [][]byte {
	frames := make([][]byte, flows)
	for i := range frames {
		frames[i] = makePacket(clientAddr(uint32(i)), syn)
	}
	return frames
}
