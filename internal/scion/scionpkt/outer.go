// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// Sizes of the outer headers in bytes.
const (
	EthernetLen = 14
	IPv4Len     = 20
	IPv6Len     = 40
	UDPLen      = 8
)

// EtherTypes of the two families.
const (
	EtherTypeIPv4 = 0x0800
	EtherTypeIPv6 = 0x86dd
)

const protoUDP = 17

// Outer has the fields of the Ethernet, IP and UDP headers of a frame.
type Outer struct {
	DstMAC, SrcMAC [6]byte
	// Src and Dst must be of one family.
	Src, Dst netip.AddrPort
	// ZeroChecksum leaves the UDP checksum 0, which only IPv4 allows.
	ZeroChecksum bool
}

// Frame returns a frame with a SCION packet as payload, and with right lengths and checksums.
func (o *Outer) Frame(payload []byte) ([]byte, error) {
	src, dst := o.Src.Addr().Unmap(), o.Dst.Addr().Unmap()
	if !src.IsValid() || !dst.IsValid() || src.Is4() != dst.Is4() {
		return nil, errors.New("frame: underlay source and destination are not of one family")
	}
	ipLen := IPv6Len
	if src.Is4() {
		ipLen = IPv4Len
	}
	f := make([]byte, EthernetLen+ipLen+UDPLen+len(payload))
	copy(f[0:6], o.DstMAC[:])
	copy(f[6:12], o.SrcMAC[:])
	ip := f[EthernetLen:]
	udp := ip[ipLen:]
	if src.Is4() {
		binary.BigEndian.PutUint16(f[12:], EtherTypeIPv4)
		ip[0], ip[8], ip[9] = 0x45, 64, protoUDP
		s, d := src.As4(), dst.As4()
		copy(ip[12:16], s[:])
		copy(ip[16:20], d[:])
	} else {
		binary.BigEndian.PutUint16(f[12:], EtherTypeIPv6)
		ip[0], ip[6], ip[7] = 0x60, protoUDP, 64
		s, d := src.As16(), dst.As16()
		copy(ip[8:24], s[:])
		copy(ip[24:40], d[:])
	}
	binary.BigEndian.PutUint16(udp[0:], o.Src.Port())
	binary.BigEndian.PutUint16(udp[2:], o.Dst.Port())
	copy(udp[UDPLen:], payload)
	FixOuter(f)
	if o.ZeroChecksum && src.Is4() {
		udp[6], udp[7] = 0, 0
	}
	return f, nil
}

// FixOuter sets the IP and UDP lengths and checksums of a frame with plain headers, such as Frame makes, to
// match the frame. It does nothing if Locate does not find the headers.
func FixOuter(f []byte) {
	l, ok := Locate(f)
	if !ok {
		return
	}
	ip, udp := f[EthernetLen:], f[l.UDP:]
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	if l.IPv6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(udp)))
	} else {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^Sum(ip[:IPv4Len]))
	}
	udp[6], udp[7] = 0, 0
	sum := ^UDPSum(f, l)
	if sum == 0 {
		// A computed 0 is sent as all ones, because 0 means that there is no checksum (RFC 768).
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(udp[6:], sum)
}

// Layout has the offsets of a frame's headers in bytes.
type Layout struct {
	IPv6 bool
	// UDP is the offset of the UDP header, SCION that of its payload.
	UDP, SCION int
}

// Locate finds the headers of a frame with plain IPv4 or IPv6 and UDP headers: without a VLAN tag, IP options
// and extension headers. It looks only at the EtherType, the IP header length and the protocol. ok is false
// for other frames.
func Locate(f []byte) (l Layout, ok bool) {
	if len(f) < EthernetLen+IPv4Len+UDPLen {
		return Layout{}, false
	}
	ip := f[EthernetLen:]
	switch binary.BigEndian.Uint16(f[12:]) {
	case EtherTypeIPv4:
		if ip[0] != 0x45 || ip[9] != protoUDP {
			return Layout{}, false
		}
		l.UDP = EthernetLen + IPv4Len
	case EtherTypeIPv6:
		if ip[0]>>4 != 6 || ip[6] != protoUDP || len(ip) < IPv6Len+UDPLen {
			return Layout{}, false
		}
		l.IPv6, l.UDP = true, EthernetLen+IPv6Len
	default:
		return Layout{}, false
	}
	l.SCION = l.UDP + UDPLen
	return l, true
}

// Sum returns the 16-bit one's complement sum of b in network byte order, not inverted.
func Sum(b []byte) uint16 { return fold(add(0, b)) }

// UDPSum returns the one's complement sum over the UDP datagram of a frame and its pseudo header, not
// inverted. It is 0xffff if the checksum is right. The datagram ends where its length field says, or with the
// frame.
func UDPSum(f []byte, l Layout) uint16 {
	udp := f[l.UDP:]
	length := int(binary.BigEndian.Uint16(udp[4:]))
	s := uint64(protoUDP) + uint64(length)
	if l.IPv6 {
		s = add(s, f[EthernetLen+8:EthernetLen+40])
	} else {
		s = add(s, f[EthernetLen+12:EthernetLen+20])
	}
	return fold(add(s, udp[:min(length, len(udp))]))
}

func add(s uint64, b []byte) uint64 {
	for len(b) >= 4 {
		s += uint64(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		s += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

func fold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
