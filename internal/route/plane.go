// SPDX-License-Identifier: Apache-2.0

// Package route keeps the data plane's copy of the kernel's routing tables, neighbours and VLANs
// current, from netlink.
//
// # What the mirror promises
//
// The programs look a destination up in the mirror, an lpm.Table, and get the number of a next hop. Next hop
// HopAsk has them ask the kernel, which is always right and slower; whatever this package does not know for
// certain, it answers so. The programs believe the mirror only until a deadline on CLOCK_MONOTONIC. Run moves it to
// 80 ms after a moment at which the netlink socket was empty and all that had been read was applied, every 20 ms. So
// no packet follows a route that has been gone for 100 ms, however far Run has fallen behind, even if it has died.
//
// # What it mirrors
//
// The tables local, main and, for IPv4, default, while the policy rules of the family are exactly those that the
// kernel makes; with any other rule, that of VRFs included, the family's mirror is not used. Each prefix has the route
// with the lowest metric. A prefix is asked for if it has a route for some tos or source addresses only, several
// routes of the lowest metric, several next hops (its own or a group's), a tunnel (encapsulation), an expiry, an MTU
// of its own without a gateway, the type throw, or if it is of table default; so are link-local prefixes. IPv6 looks
// in table local first, so a prefix there decides for longer ones of table main too. IPv4 does so only on hosts that
// once had a policy rule, and takes the longest prefix of both tables on others; nothing tells which, so longer
// prefixes of main are asked for there. Multicast destinations of IPv4 are no matter of these tables: the programs
// must not look them up.
//
// # What the kernel does without telling
//
// It removes the IPv4 routes of a device that goes down, its next hop objects also when the carrier goes, the routes of
// a next hop object that is removed, and the IPv4 routes with a removed address as preferred source. The next hops in
// question ask at once (they are condemned: a route that returns has a new one), or the family is not used at all, and
// the tables are read again. Of a removed next hop of a multipath route of IPv6 the kernel tells, but not what is left;
// such prefixes ask until the tables have been read.
//
// Reading the tables goes on between notifications, and the mirror stays in use meanwhile. A part of a dump may be older
// than a notification that has been applied, so what has been told since the part before is not taken from it. Routes
// that a dump has not shown are swept out after it. When notifications are lost (ENOBUFS), the mirror is out of use
// until a dump is through.
//
// Of the settings, those that netconf reports are read at once and the others (send_redirects,
// fib_multipath_hash_policy, MTU of IPv6, ip_forward_use_pmtu) within about a second; IPsec policies, which put a family
// into the kernel's hands, within 100 ms; what a driver takes from XDP within half a second.
package route

import (
	"net/netip"
	"time"

	"culvert/internal/route/routeplane"
)

// Plane is the data plane as Run sees it. One goroutine calls it.
type Plane interface {
	// Table4 and Table6 are the memory of the mirror, shared with the programs, for lpm.New; nil without a
	// mirror. The first level of IPv4 has 2^24 entries, that of IPv6 2^16.
	Table4() (root, blocks []uint32)
	Table6() (root, blocks []uint32)
	// SetHop says what a number in the mirror stands for. Packets see the old or the new meaning, never
	// a mixture.
	SetHop(number uint32, hop routeplane.Hop) error
	// HopUsed tells when the program last sent to a next hop, at a resolution of about a second, on
	// CLOCK_MONOTONIC; 0 for never.
	HopUsed(number uint32) time.Duration
	// SetNeighbor gives a neighbour on a connected network its next hop's number.
	SetNeighbor(n routeplane.Neighbor, number uint32) error
	// DeleteNeighbor is no error if there is none.
	DeleteNeighbor(n routeplane.Neighbor) error
	// SetDev describes a device, by its index; the devices of VLANs too.
	SetDev(index int, dev routeplane.Dev) error
	// DeleteDev is no error if there is none.
	DeleteDev(index int) error
	// SetOwn4 gives all IPv4 addresses of this host, which are no sources of forwarded packets.
	SetOwn4(addrs []netip.Addr) error
	SetPolicy(p routeplane.Policy) error
	// SetCurrent says until when, on CLOCK_MONOTONIC, the programs may believe the mirror; the zero
	// values end that at once.
	SetCurrent(until4, until6 time.Duration) error
	// Attached names the interfaces that carry the program now, AttachedIndexes gives their indexes.
	Attached() []string
	AttachedIndexes() []int
}
