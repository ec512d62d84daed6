// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"net/netip"

	"culvert/internal/bpfobj"
)

// Outer returns the source of the outer header for packets of a client to a port of the backend's VIP. Its port is that of
// GUE's UDP header, 0 for other encapsulations. The source is invalid for a backend without encapsulation.
func (p *Plane) Outer(b Backend, client netip.AddrPort, port uint16) (source netip.AddrPort) {
	if b.Encap == L2 {
		return source
	}
	spread := uint32(newFlowKey(b.VIP, client, port).hash(secretOf(p.inst)) >> 16) // as in lb_send
	raw := b.raw()
	raw.Src.W[3] |= spread & raw.SrcMask
	addr := bpfobj.WordsAddr(raw.Src.W)
	if b.Addr.Is4() && !addr.Is4() { // a backend without a source
		addr = netip.IPv4Unspecified()
	}
	if b.Encap == GUE {
		return netip.AddrPortFrom(addr, uint16(0xc000|spread&0x3fff))
	}
	return netip.AddrPortFrom(addr, 0)
}

// Overhead returns the length in bytes of the headers that are added to packets to the backend.
func (b Backend) Overhead() int {
	if b.Encap == L2 {
		return 0
	}
	bytes := 20
	if b.Addr.Is6() {
		bytes = 40
	}
	if b.Encap == GUE {
		bytes += 8
	}
	return bytes
}
