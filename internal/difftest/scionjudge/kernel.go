// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"encoding/binary"
	"net/netip"

	"culvert/internal/scion/scionpkt"
)

// datagram is what a UDP socket of the router receives.
type datagram struct {
	// link is the index of the link whose socket takes it.
	link     int
	src, dst netip.AddrPort
	payload  []byte
	// end is where the IP datagram ends in the frame.
	end int
	// sum is the one's complement sum over datagram and pseudo header, 0xffff when the checksum
	// is right or, on IPv4, absent.
	sum uint16
	// zeroChecksum says that there was no checksum.
	zeroChecksum bool
}

// deliver does what the host's network stack does with a frame before a socket of the router receives
// it. reason says why no socket does.
//
// A wrong UDP checksum is left to the caller: it is the one defect that a fast path may pass on,
// as long as it stays as wrong as it was and the next receiver sees it.
func deliver(n *scionpkt.Network, frame []byte) (d datagram, reason string) {
	if len(frame) < scionpkt.EthernetLen {
		return d, "no Ethernet header"
	}
	if !ourMAC(n, [6]byte(frame[0:6])) {
		return d, "frame for another MAC address"
	}
	ip := frame[scionpkt.EthernetLen:]
	var src, dst netip.Addr
	var udp []byte
	var hdr int
	switch binary.BigEndian.Uint16(frame[12:]) {
	case scionpkt.EtherTypeIPv4:
		if src, dst, udp, hdr, reason = parseIPv4(ip); reason != "" {
			return d, reason
		}
	case scionpkt.EtherTypeIPv6:
		if src, dst, udp, hdr, reason = parseIPv6(ip); reason != "" {
			return d, reason
		}
	default:
		return d, "neither IPv4 nor IPv6"
	}
	if len(udp) < scionpkt.UDPLen {
		return d, "no UDP header"
	}
	d.end = scionpkt.EthernetLen + hdr + len(udp)
	length := int(binary.BigEndian.Uint16(udp[4:]))
	if length < scionpkt.UDPLen || length > len(udp) {
		return d, "UDP length wrong"
	}
	d.zeroChecksum = udp[6] == 0 && udp[7] == 0
	switch {
	case d.zeroChecksum && src.Is6():
		return d, "no UDP checksum on IPv6"
	case d.zeroChecksum:
		d.sum = 0xffff
	default:
		d.sum = scionpkt.UDPSum(frame, scionpkt.Layout{
			IPv6: src.Is6(), UDP: scionpkt.EthernetLen + hdr,
		})
	}
	d.payload = udp[scionpkt.UDPLen:length]
	d.src = netip.AddrPortFrom(src, binary.BigEndian.Uint16(udp[0:]))
	d.dst = netip.AddrPortFrom(dst, binary.BigEndian.Uint16(udp[2:]))
	if martian(src, dst) {
		return d, "martian source address"
	}
	var ok bool
	if d.link, ok = socket(n, d.src, d.dst); !ok {
		return d, "no socket"
	}
	return d, ""
}

func ourMAC(n *scionpkt.Network, mac [6]byte) bool {
	if mac[0]&1 == 1 {
		// Linux delivers a unicast datagram in a group frame unless told otherwise.
		return true
	}
	for _, d := range n.Devices {
		if d.MAC == mac {
			return true
		}
	}
	return false
}

const protoUDP = 17

func parseIPv4(ip []byte) (src, dst netip.Addr, udp []byte, hdr int, reason string) {
	if len(ip) < scionpkt.IPv4Len || ip[0]>>4 != 4 {
		return src, dst, nil, 0, "no IPv4 header"
	}
	hdr = int(ip[0]&15) * 4
	total := int(binary.BigEndian.Uint16(ip[2:]))
	switch {
	case hdr < scionpkt.IPv4Len || hdr > len(ip) || total < hdr || total > len(ip):
		return src, dst, nil, 0, "IPv4 length wrong"
	case scionpkt.Sum(ip[:hdr]) != 0xffff:
		return src, dst, nil, 0, "IPv4 header checksum wrong"
	case hdr > scionpkt.IPv4Len:
		// The stack may well deliver these. They need not be judged: no generated packet has
		// options, and a fast path must leave them alone.
		return src, dst, nil, 0, "IPv4 options"
	case binary.BigEndian.Uint16(ip[6:])&0x3fff != 0:
		return src, dst, nil, 0, "IPv4 fragment"
	case ip[9] != protoUDP:
		return src, dst, nil, 0, "not UDP"
	}
	src, dst = netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
	return src, dst, ip[hdr:total], hdr, ""
}

func parseIPv6(ip []byte) (src, dst netip.Addr, udp []byte, hdr int, reason string) {
	if len(ip) < scionpkt.IPv6Len || ip[0]>>4 != 6 {
		return src, dst, nil, 0, "no IPv6 header"
	}
	total := scionpkt.IPv6Len + int(binary.BigEndian.Uint16(ip[4:]))
	switch {
	case total > len(ip):
		return src, dst, nil, 0, "IPv6 length wrong"
	case ip[6] != protoUDP:
		return src, dst, nil, 0, "not UDP"
	}
	src, dst = netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
	return src, dst, ip[scionpkt.IPv6Len:total], scionpkt.IPv6Len, ""
}

// martian reports whether Linux refuses the source address on any host: groups, broadcast, loopback,
// "this network", IPv4-mapped and, on IPv4, the address that the datagram itself is for. Linux also
// refuses its other addresses, and what rp_filter and packet filters say; a data plane of one router
// knows nothing of these, so they are not judged.
func martian(src, dst netip.Addr) bool {
	if src.IsMulticast() || src.IsLoopback() || src.Is4In6() {
		return true
	}
	if !src.Is4() {
		return false
	}
	b := src.As4()
	return b[0] == 0 || b == [4]byte{255, 255, 255, 255} || src == dst
}

// socket returns the link whose socket receives a datagram: a connected one if both its ends match, else
// the internal one, which receives from anyone.
func socket(n *scionpkt.Network, src, dst netip.AddrPort) (int, bool) {
	for i := 1; i < len(n.Links); i++ {
		if n.Links[i].Local == dst && n.Links[i].Remote == src {
			return i, true
		}
	}
	return 0, n.Links[0].Local == dst
}
