// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"net/netip"
	"time"

	"culvert/internal/host/nexthop"
	"culvert/internal/scion/keyring"
	"culvert/internal/scion/scionplane"
)

// DataPlane is the part of the fast path that the router uses. A link is an index into scionplane.Config.Links.
type DataPlane interface {
	FastPathCounters
	// Adopted tells whether an earlier process started the fast path.
	Adopted() bool
	// Generic tells whether it runs in XDP's generic mode.
	Generic() bool
	// Attached returns the names of the interfaces that it is attached to now, AttachedIndexes their indexes.
	Attached() []string
	AttachedIndexes() []int
	// Keys lists the loaded keys.
	Keys() ([]scionplane.KeyInfo, error)
	// SetOwnKey loads the forwarding key of the slow path. Keys that were loaded by hand stay, and those of a schedule go.
	SetOwnKey(key [16]byte) error
	// ScheduleKeys loads the keys of a schedule as they are due, and SetSlowPathKey notes the current one.
	ScheduleKeys(keys []keyring.Key, now time.Time) error
	SetSlowPathKey(key [16]byte) error
	// Keep notes the keys, their schedule and the interfaces of links, and back brings them back.
	Keep() (back func() error, err error)
	// SetLinkUp sets whether the fast path may send over a link.
	SetLinkUp(link int, up bool) error
	// SetLinkBFD sets the session whose BFD packets are passed up from a link. With the zero value all are.
	SetLinkBFD(link int, s scionplane.BFDSession) error
	// SetLinkNextHop sets the next hop of the far end of a link. With the zero value the slow path gets its packets.
	SetLinkNextHop(link int, nh scionplane.NextHop) error
	// SetLinkAccept sets the interfaces by which datagrams of a link are accepted.
	SetLinkAccept(link int, a scionplane.Accept) error
	// Hosts returns the end hosts that the fast path knows, with the time of the last packet to each
	// (scionplane.HostUsed).
	Hosts() (used map[netip.Addr]uint32, err error)
	// SetHost sets the next hop of an end host. The zero value means that only the kernel has a way to it.
	SetHost(addr netip.Addr, nh scionplane.NextHop) error
	// DeleteHost removes an end host. It is no error if there is no such host.
	DeleteHost(addr netip.Addr) error
	// WantedHosts calls found for each end host whose packets the fast path passes up for want of a next hop, until
	// ctx ends.
	WantedHosts(ctx context.Context, found func(netip.Addr)) error
}

// NextHop converts a next hop for the data plane. Its programs write no VLAN tags, so nexthop.Options.VLAN has to be off.
func NextHop(nh nexthop.NextHop) scionplane.NextHop {
	return scionplane.NextHop{
		IfIndex: nh.IfIndex, SrcMAC: nh.SrcMAC, DstMAC: nh.DstMAC, MTU: nh.MTU, LinearOnly: nh.LinearOnly,
	}
}
