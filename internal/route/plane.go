// SPDX-License-Identifier: Apache-2.0

// Package route keeps the data plane's copy of the kernel's routing tables, neighbors and VLANs
// current, from netlink.
//
// # What the mirror promises
//
// The programs look a destination up in the mirror, an lpm.Table, and get the number of a next hop. Next hop HopAsk
// makes them ask the kernel, which is always right, but slower. This package enters HopAsk wherever it does not know
// the answer for certain. The programs believe the mirror only until a deadline on CLOCK_MONOTONIC. Every 20 ms Run
// moves the deadline to 80 ms after the last moment at which the netlink socket was empty and everything read from it
// was applied. So no packet follows a route that has been gone for 100 ms, even if Run has fallen behind or died.
//
// # What it mirrors
//
// It mirrors the tables local, main and, for IPv4, default, as long as the policy rules of the family are exactly the
// kernel's default ones. With any other rule, a VRF's included, the family's mirror is not used. Each prefix has the
// route with the lowest metric. The programs ask the kernel for a prefix that
//
//   - has a route for some tos or some source addresses only,
//   - has several routes with the lowest metric, or several next hops (its own or a group's),
//   - has a route with a tunnel (encapsulation), an expiry, the type throw, or an MTU but no gateway,
//   - is in table default, or is link-local.
//
// IPv6 looks in table local first, so a prefix there overrides longer ones of table main. IPv4 does so only on hosts
// that once had a policy rule; on others it takes the longest prefix of both tables. Nothing shows which of the two
// applies, so the programs ask for prefixes of main that lie within one of local. The IPv4 tables do not cover
// multicast destinations: the programs must not look them up.
//
// # What the kernel does without a notification
//
// The kernel removes the IPv4 routes of a device that goes down, the next hop objects of a device that goes down or
// loses its carrier, the routes of a removed next hop object, and the IPv4 routes whose preferred source is a removed
// address. Run then condemns the next hops in question, which makes the programs ask at once (a route that returns gets
// a new next hop), or puts the whole family out of use, and reads the tables again. When a next hop of an IPv6 multipath
// route is removed, the notification does not say which next hops are left: the programs ask for such a prefix until the
// tables have been read.
//
// Run reads the tables in between notifications, and the mirror stays in use meanwhile. A part of a dump may be older
// than a notification that has been applied, so Run ignores the part's entries that notifications have touched since
// the previous part. If a dump shows a route that may be gone, since there was no notification of it or since its next
// hop object went during the dump, the programs ask for the prefix until the next dump has shown the route too, or has
// not. Routes that a dump has not shown are removed at its end. When notifications are lost (ENOBUFS),
// the mirror is out of use until a dump is complete.
//
// Run reads settings that netconf reports at once, and the others (send_redirects, fib_multipath_hash_policy, MTU of
// IPv6, ip_forward_use_pmtu) within about a second. It notices IPsec policies, which leave a family to the kernel,
// within 100 ms, and what a driver takes from XDP within half a second.
package route

import (
	"net/netip"
	"time"

	"culvert/internal/route/routeplane"
)

// Plane is the data plane as Run sees it. One goroutine calls it.
type Plane interface {
	// Table4 and Table6 are the mirror's memory for lpm.New, shared with the programs; nil without a mirror.
	// root has 2^24 entries for IPv4 and 2^16 for IPv6.
	Table4() (root, blocks []uint32)
	Table6() (root, blocks []uint32)
	// SetHop says what a number in the mirror stands for. Packets see the old or the new meaning, never
	// a mixture.
	SetHop(number uint32, hop routeplane.Hop) error
	// Touch makes the programs forget which next hops the kernel has chosen for destinations of the slots from first on, and
	// not remember any until Settle is called. There are routeplane.Slots of each family.
	Touch(is6 bool, first, n int)
	Settle()
	// HopUsed returns when the programs last sent to a next hop, on CLOCK_MONOTONIC with a resolution of about
	// a second; 0 means never.
	HopUsed(number uint32) time.Duration
	// SetNeighbor assigns a next hop's number to a neighbor on a connected network.
	SetNeighbor(n routeplane.Neighbor, number uint32) error
	// DeleteNeighbor removes a neighbor. A missing one is no error.
	DeleteNeighbor(n routeplane.Neighbor) error
	// Neighbors returns all neighbors with their numbers, Devs all devices. They may be those of an earlier Run.
	Neighbors() (map[routeplane.Neighbor]uint32, error)
	Devs() (map[int]routeplane.Dev, error)
	// SetDev describes the device, maybe of a VLAN, that has the given index.
	SetDev(index int, dev routeplane.Dev) error
	// DeleteDev removes a device. A missing one is no error.
	DeleteDev(index int) error
	// SetOwn4 replaces the IPv4 addresses of this host. No forwarded packet may come from one of them.
	SetOwn4(addrs []netip.Addr) error
	// SetPolicy replaces the host's settings that change how routes are chosen.
	SetPolicy(p routeplane.Policy) error
	// SetCurrent sets until when, on CLOCK_MONOTONIC, the programs may believe the mirror of IPv4 and of IPv6.
	// Zero ends that at once.
	SetCurrent(until4, until6 time.Duration) error
	// Attached and AttachedIndexes return the names and the indexes of the interfaces that carry the program now.
	Attached() []string
	AttachedIndexes() []int
}
