// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/datapath"
	"culvert/internal/host/nexthop"
)

// DataPlane is the fast path as Run sees it. Links are indexes into datapath.Config.Links.
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
	Keys() ([]datapath.KeyInfo, error)
	// SetOwnKey loads the forwarding key that the slow path has, beside the keys that were loaded
	// by hand.
	SetOwnKey(key [16]byte) error
	SetLinkUp(link int, up bool) error
	// SetLinkBFD says which BFD packets of a link may be passed up; the zero value says all.
	SetLinkBFD(link int, s datapath.BFDSession) error
	// SetLinkNextHop says where the far end of a link is; the zero value sends its packets to the
	// slow path.
	SetLinkNextHop(link int, nh datapath.NextHop) error
	// SetLinkAccept says by which interfaces datagrams of a link are taken.
	SetLinkAccept(link int, a datapath.Accept) error
	// Hosts lists the end hosts that the fast path knows, and when it last sent to each (datapath.HostUsed).
	Hosts() (used map[netip.Addr]uint32, err error)
	// SetHost says where an end host is; the zero value says that only the kernel has a way to it.
	SetHost(addr netip.Addr, nh datapath.NextHop) error
	// DeleteHost is no error when there is no such host.
	DeleteHost(addr netip.Addr) error
	// WantedHosts calls found for each end host that the fast path had to pass up for want of a
	// next hop, until ctx ends.
	WantedHosts(ctx context.Context, found func(netip.Addr)) error
	// Refresh brings the fast path up to what has changed on the host: clock offset, interfaces.
	Refresh() error
	// Detach takes the fast path away. Run calls it only when it fails right after attaching.
	Detach() error
	// Close frees what this process holds and leaves the fast path running.
	Close() error
}

// Deps is what Run needs from other packages.
type Deps struct {
	// Interfaces to attach to. Without them, those that carry the router's underlay addresses.
	Interfaces []string
	// Attach puts the fast path onto the network interfaces, or adopts the one that runs there.
	Attach func(r *Router, interfaces []string) (DataPlane, error)
	// LooseLinks has datagrams of all links taken by any interface, not only by the one that leads to
	// the link's far end.
	LooseLinks bool
	// BFDMinTTL is the TTL or hop limit that BFD packets have to come with, 0 for any.
	BFDMinTTL uint8
	// Collector gives culvert's own metrics of the fast path. It may be nil.
	Collector func(DataPlane) prometheus.Collector
	// DebugHTTP has the metrics and API addresses serve the profiler, and change the log level.
	DebugHTTP bool
}

// NextHop is what the data plane takes of a finding. Its programs write no VLAN tags: findings are to be
// without (nexthop.Options.VLAN off).
func NextHop(nh nexthop.NextHop) datapath.NextHop {
	return datapath.NextHop{
		IfIndex: nh.IfIndex, SrcMAC: nh.SrcMAC, DstMAC: nh.DstMAC, MTU: nh.MTU, LinearOnly: nh.LinearOnly,
	}
}
