// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"encoding/binary"
	"net/netip"
)

// Native is the byte order in which programs on this machine read memory; values that are addresses or
// ports stand in memory in network order and are moved, not converted.
var Native = binary.NativeEndian

// Wire16 is a number as it stands in memory in network order.
func Wire16(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return Native.Uint16(b[:])
}

// Wire32 is Wire16 for 32 bits.
func Wire32(v uint32) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], v)
	return Native.Uint32(b[:])
}

// AddrWords returns an address as struct ip_addr: IPv4 mapped into IPv6.
func AddrWords(a netip.Addr) (w [4]uint32) {
	b := a.As16()
	for i := range w {
		w[i] = Native.Uint32(b[4*i:])
	}
	return w
}

// WordsAddr turns AddrWords back.
func WordsAddr(w [4]uint32) netip.Addr {
	var b [16]byte
	for n := range w {
		Native.PutUint32(b[4*n:], w[n])
	}
	return netip.AddrFrom16(b).Unmap()
}

// Flag is a truth value in a map.
func Flag(on bool) uint8 {
	if on {
		return 1
	}
	return 0
}

// XDPMD is struct xdp_md of linux/bpf.h: where a frame comes from, for ebpf.RunOptions. DataEnd is its length.
type XDPMD struct {
	Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32
}
