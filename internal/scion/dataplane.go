// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"net/netip"

	"culvert/internal/host/nexthop"
	"culvert/internal/scion/scionplane"
)

// DataPlane is the fast path as the router sees it. Links are indexes into scionplane.Config.Links.
type DataPlane interface {
	FastPathCounters
	// Adopted tells whether the fast path ran already, started by an earlier process.
	Adopted() bool
	// Generic tells whether it runs in the kernel's generic mode.
	Generic() bool
	// Attached names the interfaces that carry it now, AttachedIndexes gives their indexes.
	Attached() []string
	AttachedIndexes() []int
	// Keys lists the loaded keys.
	Keys() ([]scionplane.KeyInfo, error)
	// SetOwnKey loads the forwarding key that the slow path has, beside the keys that were loaded
	// by hand.
	SetOwnKey(key [16]byte) error
	SetLinkUp(link int, up bool) error
	// SetLinkBFD says which BFD packets of a link may be passed up; the zero value says all.
	SetLinkBFD(link int, s scionplane.BFDSession) error
	// SetLinkNextHop says where the far end of a link is; the zero value sends its packets to the
	// slow path.
	SetLinkNextHop(link int, nh scionplane.NextHop) error
	// SetLinkAccept says by which interfaces datagrams of a link are taken.
	SetLinkAccept(link int, a scionplane.Accept) error
	// Hosts lists the end hosts that the fast path knows, and when it last sent to each (scionplane.HostUsed).
	Hosts() (used map[netip.Addr]uint32, err error)
	// SetHost says where an end host is; the zero value says that only the kernel has a way to it.
	SetHost(addr netip.Addr, nh scionplane.NextHop) error
	// DeleteHost is no error when there is no such host.
	DeleteHost(addr netip.Addr) error
	// WantedHosts calls found for each end host that the fast path had to pass up for want of a
	// next hop, until ctx ends.
	WantedHosts(ctx context.Context, found func(netip.Addr)) error
}

// NextHop is what the data plane takes of a finding. Its programs write no VLAN tags: findings are to be
// without (nexthop.Options.VLAN off).
func NextHop(nh nexthop.NextHop) scionplane.NextHop {
	return scionplane.NextHop{
		IfIndex: nh.IfIndex, SrcMAC: nh.SrcMAC, DstMAC: nh.DstMAC, MTU: nh.MTU, LinearOnly: nh.LinearOnly,
	}
}
