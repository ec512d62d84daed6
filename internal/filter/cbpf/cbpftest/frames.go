// SPDX-License-Identifier: Apache-2.0

package cbpftest

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
)

// MinFrame is the shortest frame that a test run of an XDP program takes: an Ethernet header.
const MinFrame = 14

// Frames returns n frames of all kinds. Some are damaged, truncated or garbage.
func Frames(rng *rand.Rand, n int) [][]byte {
	frames := make([][]byte, n)
	for i := range frames {
		switch i % 8 {
		case 5:
			frames[i] = Damage(rng, Frame(rng))
		case 6:
			f := Frame(rng)
			frames[i] = f[:MinFrame+rng.IntN(len(f)-MinFrame+1)]
		case 7:
			frames[i] = Garbage(rng)
		default:
			frames[i] = Frame(rng)
		}
	}
	return frames
}

// Damage returns a copy with some of the first bytes changed.
func Damage(rng *rand.Rand, frame []byte) []byte {
	frame = append([]byte{}, frame...)
	for range 1 + rng.IntN(4) {
		at := rng.IntN(min(len(frame), 80))
		if rng.IntN(2) == 0 {
			frame[at] ^= 1 << rng.IntN(8)
		} else {
			frame[at] = byte(rng.Uint32())
		}
	}
	return frame
}

// Garbage returns a frame of random bytes, sometimes with a known EtherType.
func Garbage(rng *rand.Rand) []byte {
	frame := random(rng, MinFrame+rng.IntN(100))
	if rng.IntN(2) == 0 {
		binary.BigEndian.PutUint16(frame[12:], pick(rng, etherIPv4, etherIPv6, etherARP, etherVLAN, etherMPLS, etherPPPoE))
	}
	return frame
}

// Frame returns a frame of a random kind. Values in Expressions are more frequent than others. The frame is well formed, except
// that a length in it may be wrong.
func Frame(rng *rand.Rand) []byte {
	b := append([]byte{}, pick(rng, macs...)...)
	b = append(b, pick(rng, macs...)...)
	for range pick(rng, 0, 0, 0, 0, 1, 1, 2) {
		b = be16(b, pick[uint16](rng, etherVLAN, etherVLAN, etherVLAN, etherQinQ, etherOldQinQ))
		b = be16(b, pick[uint16](rng, 0, 0x6000)|pick(rng, 100, 200, 300, uint16(rng.UintN(4096))))
	}
	switch rng.IntN(20) {
	case 0: // IEEE 802.3: a length, and LLC
		payload := append(pick(rng, []byte{0x42, 0x42, 3}, []byte{0xaa, 0xaa, 3, 0, 0, 0, 8, 0}, []byte{0xf0, 0xf0, 3},
			[]byte{0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b}, []byte{0xe0, 0xe0, 3}), random(rng, rng.IntN(60))...)
		return append(be16(b, uint16(len(payload))), payload...)
	case 1:
		b = be16(b, etherMPLS)
		for n := rng.IntN(3); ; n-- {
			entry := pick(rng, 17, 1000, rng.Uint32N(1<<20))<<12 | 64
			if n <= 0 {
				return append(be32(b, entry|1<<8), network(rng, nil)...)
			}
			b = be32(b, entry)
		}
	case 2:
		session := pick(rng, 7, 8, uint16(rng.Uint32()))
		if rng.IntN(3) == 0 {
			return append(be16(be16(be16(b, etherPPPoED), 0x1109), session), random(rng, rng.IntN(40))...)
		}
		var ether uint16
		payload := network(rng, &ether)
		b = be16(be16(be16(b, etherPPPoE), 0x1100), session)
		b = be16(b, uint16(len(payload)+2))
		return append(be16(b, map[uint16]uint16{etherIPv4: 0x21, etherIPv6: 0x57}[ether]), payload...)
	case 3, 4:
		return append(be16(b, pick[uint16](rng, etherARP, etherARP, etherARP, etherRARP)), arp(rng)...)
	case 5:
		return append(be16(b, pick(rng, 0x88cc, 0x80f3, 0x8137, 0x809b, uint16(rng.Uint32()))), random(rng, rng.IntN(80))...)
	}
	var ether uint16
	payload := network(rng, &ether)
	return append(be16(b, ether), payload...)
}

const (
	etherIPv4    uint16 = 0x0800
	etherARP     uint16 = 0x0806
	etherRARP    uint16 = 0x8035
	etherVLAN    uint16 = 0x8100
	etherIPv6    uint16 = 0x86dd
	etherMPLS    uint16 = 0x8847
	etherPPPoED  uint16 = 0x8863
	etherPPPoE   uint16 = 0x8864
	etherQinQ    uint16 = 0x88a8
	etherOldQinQ uint16 = 0x9100
)

var macs = [][]byte{
	{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 0, 3}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	{1, 0, 0x5e, 0, 0, 5}, {0x33, 0x33, 0, 0, 0, 1}, {1, 0x80, 0xc2, 0, 0, 0},
}

var hosts4, hosts6 = addresses("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.77", "192.0.2.200", "10.0.0.1", "10.0.0.2",
	"10.99.3.4", "172.16.5.5", "198.51.100.9", "224.0.0.5", "255.255.255.255"),
	addresses("2001:db8::1", "2001:db8::2", "2001:db8:1::5", "2001:db9::1", "fe80::1", "ff02::1", "::1")

var ports = []uint16{53, 53, 80, 80, 443, 123, 22, 1500, 33440, 5000, 40000, 1, 0, 65535}

func addresses(text ...string) (a [][]byte) {
	for _, t := range text {
		a = append(a, netip.MustParseAddr(t).AsSlice())
	}
	return a
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

func random(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func be16(b []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(b, v) }
func be32(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }

func arp(rng *rand.Rand) []byte {
	b := be16([]byte{0, 1, 8, 0, 6, 4}, pick[uint16](rng, 1, 2, 3))
	b = append(append(b, pick(rng, macs...)...), pick(rng, hosts4...)...)
	b = append(append(b, pick(rng, macs...)...), pick(rng, hosts4...)...)
	return append(b, make([]byte, pick(rng, 0, 18))...) // padded, or not
}

// network returns an IP packet. It stores the EtherType in ether unless that is nil.
func network(rng *rand.Rand, ether *uint16) []byte {
	v6 := rng.IntN(5) < 2
	if ether != nil {
		*ether = etherIPv4
		if v6 {
			*ether = etherIPv6
		}
	}
	if v6 {
		return ipv6(rng)
	}
	return ipv4(rng)
}

func ipv4(rng *rand.Rand) []byte {
	proto, payload := transport(rng, false)
	words := pick(rng, 5, 5, 5, 5, 5, 6, 8, 15, 5+rng.IntN(11))
	length := uint16(4*words + len(payload))
	if rng.IntN(20) == 0 {
		length = uint16(rng.UintN(2000))
	}
	ihl := words
	if rng.IntN(30) == 0 {
		ihl = rng.IntN(16)
	}
	fragment := pick[uint16](rng, 0, 0, 0, 0x4000, 0x4000, 0x2000, 0x20b9, 0x00b9, uint16(rng.Uint32()))
	b := []byte{0x40 | byte(ihl), pick[byte](rng, 0, 0xb8, byte(rng.Uint32()))}
	b = be16(be16(be16(b, length), uint16(rng.Uint32())), fragment)
	b = be16(append(b, ttl(rng), proto), uint16(rng.Uint32()))
	b = append(append(b, pick(rng, hosts4...)...), pick(rng, hosts4...)...)
	return append(append(b, random(rng, 4*words-20)...), payload...)
}

func ttl(rng *rand.Rand) byte { return pick(rng, 64, 64, 255, 1, 4, 5, 128, byte(rng.Uint32())) }

func ipv6(rng *rand.Rand) []byte {
	proto, payload := transport(rng, true)
	for range pick(rng, 0, 0, 0, 1, 1, 2, 3) {
		kind := pick[byte](rng, 0, 43, 44, 51, 60)
		header := []byte{proto, 0, 0, 0, 0, 0, 0, 0}
		switch kind {
		case 44:
			binary.BigEndian.PutUint16(header[2:], pick[uint16](rng, 0, 1, 0xb9, 0xb8))
		case 51:
			header = append([]byte{proto, 4}, random(rng, 22)...)
		default:
			n := rng.IntN(3)
			header = append([]byte{proto, byte(n)}, random(rng, 6+8*n)...)
		}
		proto, payload = kind, append(header, payload...)
	}
	b := be32(nil, 6<<28|rng.Uint32N(1<<28))
	b = append(be16(b, uint16(len(payload))), proto, ttl(rng))
	return append(append(append(b, pick(rng, hosts6...)...), pick(rng, hosts6...)...), payload...)
}

// transport returns a protocol and the payload of an IP packet.
func transport(rng *rand.Rand, v6 bool) (proto byte, b []byte) {
	data := random(rng, pick(rng, 0, 0, 4, 18, rng.IntN(100), rng.IntN(100), rng.IntN(1400)))
	if rng.IntN(4) == 0 {
		data = append(pick(rng, []byte("GET "), []byte("d1:a")), data...)
	}
	b = be16(be16(nil, pick(rng, ports...)), pick(rng, ports...))
	switch rng.IntN(12) {
	case 0, 1, 2, 3:
		words := pick(rng, 5, 5, 8, 10, 5+rng.IntN(11))
		offset := words
		if rng.IntN(30) == 0 {
			offset = rng.IntN(16)
		}
		b = be32(be32(b, pick(rng, 0x12345678, rng.Uint32())), rng.Uint32())
		b = append(b, byte(offset)<<4, pick[byte](rng, 2, 2, 0x12, 0x10, 0x18, 4, 0x11, 0x14, 0, byte(rng.Uint32())))
		b = append(append(be16(b, 1024), 0, 0, 0, 0), random(rng, 4*words-20)...)
		return 6, append(b, data...)
	case 4, 5, 6, 7:
		b = be16(be16(b, uint16(8+len(data))), pick(rng, 0, uint16(rng.Uint32())))
		return 17, append(b, data...)
	case 8, 9:
		b = append([]byte{pick[byte](rng, 0, 3, 8, 11), pick[byte](rng, 0, 4), 0, 0}, b...)
		if v6 {
			b[0], b[1] = pick[byte](rng, 128, 129, 1, 135, 136), 0
			return 58, append(b, data...)
		}
		return 1, append(b, data...)
	case 10:
		return 132, append(be32(be32(b, rng.Uint32()), 0), data...)
	}
	return pick(rng, 2, 47, 50, 51, 89, 103, 112, 1, 58, 59, byte(rng.Uint32())), append(b, data...)
}
