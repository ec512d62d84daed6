// SPDX-License-Identifier: Apache-2.0

package sflow

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Frame is what the first bytes of an Ethernet frame say.
type Frame struct {
	Destination [6]byte
	Tagged      bool
	// VLAN and Priority are of the first tag.
	VLAN, Priority uint32
	// From and To are the addresses of the IP packet, the zero values if it is none.
	From, To netip.Addr
}

// ParseFrame reads a frame.
func ParseFrame(b []byte) (f Frame) {
	if len(b) < 14 {
		return f
	}
	copy(f.Destination[:], b)
	kind, at := binary.BigEndian.Uint16(b[12:]), 14
	for (kind == unix.ETH_P_8021Q || kind == unix.ETH_P_8021AD) && len(b) >= at+4 {
		if tag := uint32(binary.BigEndian.Uint16(b[at:])); !f.Tagged {
			f.Tagged, f.VLAN, f.Priority = true, tag&0xfff, tag>>13
		}
		kind = binary.BigEndian.Uint16(b[at+2:])
		at += 4
	}
	switch b = b[at:]; {
	case kind == unix.ETH_P_IP && len(b) >= 20:
		f.From, f.To = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	case kind == unix.ETH_P_IPV6 && len(b) >= 40:
		f.From, f.To = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	}
	return f
}
