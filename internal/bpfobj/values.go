// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"encoding/binary"
	"net/netip"
)

// Native is the byte order of this machine, in which programs read integers. Addresses and ports are in network byte order in
// maps, too: programs move them without converting them.
var Native = binary.NativeEndian

// Wire16 returns the integer whose bytes in memory are v in network byte order, as htons does.
func Wire16(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return Native.Uint16(b[:])
}

// Wire32 is Wire16 for 32 bits, as htonl.
func Wire32(v uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return Native.Uint32(b[:])
}

// AddrWords returns an address as the words of struct ip_addr, in network byte order. IPv4 is mapped into IPv6.
func AddrWords(a netip.Addr) (w [4]uint32) {
	b := a.As16()
	for i := range w {
		w[i] = Native.Uint32(b[4*i:])
	}
	return w
}

// WordsAddr is the inverse of AddrWords. It returns IPv4 addresses unmapped.
func WordsAddr(w [4]uint32) netip.Addr {
	var b [16]byte
	for n := range w {
		Native.PutUint32(b[4*n:], w[n])
	}
	return netip.AddrFrom16(b).Unmap()
}

// Flag returns a bool as it is stored in maps: 1 or 0.
func Flag(on bool) uint8 {
	if on {
		return 1
	}
	return 0
}

// XDPMD is struct xdp_md of linux/bpf.h, for ebpf.RunOptions.Context. Data, DataEnd and DataMeta
// are offsets into the frame: DataEnd is the length of its first buffer.
type XDPMD struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}

// BloomBit returns the number of an address's bit in a Bloom filter of addresses (bloom_addr of bpf/core/bloom.h).
func BloomBit(a netip.Addr) uint32 {
	const spread = 0x9e3779b1 // BLOOM_SPREAD
	w := AddrWords(a)
	h := (w[0]*spread+w[1])*spread + w[2]
	return (h*spread + w[3]) * spread >> 20 // 12 bits: BLOOM_BITS
}
