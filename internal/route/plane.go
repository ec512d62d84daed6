// SPDX-License-Identifier: Apache-2.0

// Package route keeps the data plane's copy of the kernel's routing tables, neighbours and VLANs
// current, from netlink.
package route

import (
	"net/netip"
	"time"

	"culvert/internal/datapath"
)

// Plane is the data plane as Run sees it. One goroutine calls it.
type Plane interface {
	// Table4 and Table6 are the memory of the mirror, shared with the programs, for lpm.New; nil without a
	// mirror. The first level of IPv4 has 2^24 entries, that of IPv6 2^16.
	RouteTable4() (root, blocks []uint32)
	RouteTable6() (root, blocks []uint32)
	// SetRouteHop says what a number in the mirror stands for. Packets see the old or the new meaning, never
	// a mixture.
	SetRouteHop(number uint32, hop datapath.RouteHop) error
	// RouteHopUsed tells when the program last sent to a next hop, at a resolution of about a second, on
	// CLOCK_MONOTONIC; 0 for never.
	RouteHopUsed(number uint32) time.Duration
	// SetRouteNeighbour gives a neighbour on a connected network its next hop's number.
	SetRouteNeighbour(n datapath.RouteNeighbour, number uint32) error
	// DeleteRouteNeighbour is no error if there is none.
	DeleteRouteNeighbour(n datapath.RouteNeighbour) error
	// SetRouteDev describes a device, by its index; the devices of VLANs too.
	SetRouteDev(index int, dev datapath.RouteDev) error
	// DeleteRouteDev is no error if there is none.
	DeleteRouteDev(index int) error
	// SetRouteOwn4 gives all IPv4 addresses of this host, which are no sources of forwarded packets.
	SetRouteOwn4(addrs []netip.Addr) error
	SetRoutePolicy(p datapath.RoutePolicy) error
	// SetRouteCurrent says until when, on CLOCK_MONOTONIC, the programs may believe the mirror; the zero
	// values end that at once.
	SetRouteCurrent(until4, until6 time.Duration) error
	// Attached names the interfaces that carry the program now.
	Attached() []string
}
