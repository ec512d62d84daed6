// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"

	"culvert/internal/bpfobj"
)

// Outer returns what the header in front of a flow's packets to a member says: the source, and that of UDP for GUE. The
// source is invalid for a member that is reached without a header. Port is the one that the client sends to.
func (p *BalancePlane) Outer(m BalanceMember, client netip.AddrPort, port uint16) (source netip.AddrPort) {
	if m.Encap == BalanceL2 {
		return source
	}
	spread := uint32(newBalanceKey(m.VIP, client, port).hash(p.inst.balanceSecret()) >> 16) // as in lb_send
	raw := m.raw()
	raw.Src.W[3] |= spread & raw.SrcMask
	addr := bpfobj.WordsAddr(raw.Src.W)
	if m.Addr.Is4() && !addr.Is4() { // a member without a source
		addr = netip.IPv4Unspecified()
	}
	if m.Encap == BalanceGUE {
		return netip.AddrPortFrom(addr, uint16(0xc000|spread&0x3fff))
	}
	return netip.AddrPortFrom(addr, 0)
}

// Overhead returns how many bytes longer packets to the member become.
func (m BalanceMember) Overhead() int {
	if m.Encap == BalanceL2 {
		return 0
	}
	bytes := 20
	if m.Addr.Is6() {
		bytes = 40
	}
	if m.Encap == BalanceGUE {
		bytes += 8
	}
	return bytes
}
