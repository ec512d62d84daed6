// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"encoding/binary"
	"math/rand/v2"
)

// mutateOuter damages the Ethernet, IP or UDP header, and returns the name of the damage. After some
// changes it fixes the checksums, so that the router looks at the field at all.
func mutateOuter(rng *rand.Rand, f []byte) ([]byte, string) {
	l, ok := Locate(f)
	if !ok {
		return f, "outer headers"
	}
	ip, udp := f[EthernetLen:], f[l.UDP:]
	name := ""
	switch rng.IntN(12) {
	case 0:
		f[rng.IntN(6)] ^= 1 << rng.IntN(8)
		return f, "destination MAC"
	case 1:
		binary.BigEndian.PutUint16(f[12:], uint16(rng.Uint32()))
		return f, "EtherType"
	case 2:
		name, f = "Ethernet trailer", append(f, make([]byte, 1+rng.IntN(16))...)
		return f, name
	case 3:
		udp[6+rng.IntN(2)] ^= 1 << rng.IntN(8)
		return f, "UDP checksum"
	case 4:
		udp[6], udp[7] = 0, 0
		return f, "UDP checksum absent"
	case 5:
		udp[4+rng.IntN(2)] ^= 1 << rng.IntN(8)
		return f, "UDP length"
	case 6:
		name = "underlay port"
		udp[rng.IntN(4)] ^= 1 << rng.IntN(8)
	case 7:
		name = "underlay address"
		if l.IPv6 {
			ip[8+rng.IntN(32)] ^= 1 << rng.IntN(8)
		} else {
			ip[12+rng.IntN(8)] ^= 1 << rng.IntN(8)
		}
	case 8:
		name = "IP time to live"
		if l.IPv6 {
			ip[7] = byte(rng.IntN(3))
		} else {
			ip[8] = byte(rng.IntN(3))
		}
	case 9:
		name = "IP protocol"
		if l.IPv6 {
			ip[6] = byte(rng.Uint32())
		} else {
			ip[9] = byte(rng.Uint32())
			fixIPv4Sum(ip)
		}
		return f, name
	case 10:
		name = "IP first word"
		ip[rng.IntN(4)] ^= 1 << rng.IntN(8)
		if !l.IPv6 && rng.IntN(2) == 0 {
			fixIPv4Sum(ip)
		}
		return f, name
	default:
		if l.IPv6 {
			ip[4+rng.IntN(2)] ^= 1 << rng.IntN(8)
			return f, "IPv6 payload length"
		}
		ip[4+rng.IntN(8)] ^= 1 << rng.IntN(8)
		if rng.IntN(2) == 0 {
			fixIPv4Sum(ip)
		}
		return f, "IPv4 fragment, protocol or checksum"
	}
	FixOuter(f)
	return f, name
}

// fixIPv4Sum sets the checksum of an IPv4 header, which may have options.
func fixIPv4Sum(ip []byte) {
	n := min(int(ip[0]&15)*4, len(ip))
	if n < IPv4Len {
		return
	}
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^Sum(ip[:n]))
}
