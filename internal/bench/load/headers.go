// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
)

// Fields of a SYN with the option for the maximum segment size (RFC 9293, 3.1). Lengths are in bytes.
const (
	ProtoTCP   = 6
	SYNLen     = 24
	SYNFlag    = 2
	MSSOption  = 2
	MSSLen     = 4
	SYNWindow  = 64240
	SYNSegment = 1460
)

// OnesSum is the one's complement sum of 16-bit big-endian words (RFC 1071). Its complement is the Internet checksum. The
// number of bytes must be even.
func OnesSum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// Seed is the seed of all random traffic, so that it is the same each time.
const Seed = 0x63756c76657274

// AddressIn returns a random address of a prefix.
func AddressIn(r *rand.Rand, p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		free := min(max(8*(i+1)-p.Bits(), 0), 8)
		b[i] |= byte(r.IntN(256)) & byte(1<<free-1)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
