// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"net/netip"

	"culvert/internal/bpfobj"
)

// Outer returns what the header in front of a flow's packets to a backend says: the source, and that of UDP for GUE. The
// source is invalid for a backend that is reached without a header. Port is the one that the client sends to.
func (p *Plane) Outer(m Backend, client netip.AddrPort, port uint16) (source netip.AddrPort) {
	if m.Encap == L2 {
		return source
	}
	spread := uint32(newFlowKey(m.VIP, client, port).hash(secretOf(p.inst)) >> 16) // as in lb_send
	raw := m.raw()
	raw.Src.W[3] |= spread & raw.SrcMask
	addr := bpfobj.WordsAddr(raw.Src.W)
	if m.Addr.Is4() && !addr.Is4() { // a backend without a source
		addr = netip.IPv4Unspecified()
	}
	if m.Encap == GUE {
		return netip.AddrPortFrom(addr, uint16(0xc000|spread&0x3fff))
	}
	return netip.AddrPortFrom(addr, 0)
}

// Overhead returns how many bytes longer packets to the backend become.
func (m Backend) Overhead() int {
	if m.Encap == L2 {
		return 0
	}
	bytes := 20
	if m.Addr.Is6() {
		bytes = 40
	}
	if m.Encap == GUE {
		bytes += 8
	}
	return bytes
}
