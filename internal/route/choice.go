// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"culvert/internal/route/routeplane"
)

// The programs remember which of several next hops the kernel has chosen for a flow (bpf/route/choice.h). This file has them
// forget it in time. A choice depends on the mirror's answer for the destination, for which a slot is touched when it changes,
// and on the next hops of the descriptor, which is unsettled when something changes that the kernel chooses by. In both cases
// the programs forget at once, and remember nothing until the change is certain to be complete: the kernel sends some
// notifications before it changes anything, as of a device that goes down or of an IPv4 route that is removed.

const (
	// settleEvery is the shortest time between two barriers, each of which lets the programs remember again.
	settleEvery = 50 * time.Millisecond
	// loopback is the index of the loopback device, which each network namespace has.
	loopback = 1
)

// Values in NHA_GROUP_TYPE, and the size of struct nexthop_grp.
const (
	groupByHash       = 0 // NEXTHOP_GRP_TYPE_MPATH
	sizeofGroupMember = 8
)

// membersOf calls fn for the objects in an NHA_GROUP.
func membersOf(group string, fn func(id uint32) (more bool)) {
	for b := []byte(group); len(b) >= sizeofGroupMember; b = b[sizeofGroupMember:] {
		if !fn(binary.NativeEndian.Uint32(b)) {
			return
		}
	}
}

// ownHops returns an RTA_MULTIPATH without what changes with the devices: the flags of each struct rtnexthop.
func ownHops(b []byte) string {
	out := append([]byte(nil), b...)
	for rest := out; len(rest) >= sizeofNexthop; {
		size := int(binary.NativeEndian.Uint16(rest))
		if size < sizeofNexthop || size > len(rest) {
			break
		}
		rest[2] = 0
		rest = rest[min(align(size), len(rest)):]
	}
	return string(out)
}

// devicesOf calls fn for the device of each next hop in an RTA_MULTIPATH.
func devicesOf(hops string, fn func(index int) (more bool)) {
	for b := []byte(hops); len(b) >= sizeofNexthop; {
		size := int(binary.NativeEndian.Uint16(b))
		if size < sizeofNexthop || size > len(b) || !fn(int(int32(u32(b[4:])))) {
			return
		}
		b = b[min(align(size), len(b)):]
	}
}

// choosesBetween reports whether a descriptor stands for several next hops of which one leaves by the device.
func (f *feed) choosesBetween(one *descriptor, index int) (found bool) {
	devicesOf(one.hops, func(dev int) bool { found = dev == index; return !found })
	if one.nexthop != 0 {
		membersOf(f.nexthops[one.nexthop].group, func(id uint32) bool { found = f.nexthops[id].dev == index; return !found })
	}
	return found
}

// hasMember reports whether a descriptor stands for a group with the next hop object.
func (f *feed) hasMember(one *descriptor, object uint32) (found bool) {
	if one.nexthop != 0 {
		membersOf(f.nexthops[one.nexthop].group, func(id uint32) bool { found = id == object; return !found })
	}
	return found
}

// chooses reports whether a descriptor may stand for several next hops, of which the kernel chooses.
func (one *descriptor) chooses() bool { return one.hops != "" || one.nexthop != 0 }

// choice is the next hop of a descriptor that stands for several.
func (f *feed) choice(one *descriptor) routeplane.Hop {
	steady := !one.unsettled && (one.is6 || !f.useNeighbors4)
	if one.nexthop != 0 {
		membersOf(f.nexthops[one.nexthop].group, func(id uint32) bool {
			_, known := f.neighbors[f.nexthops[id].via()]
			steady = steady && known
			return steady
		})
	}
	return routeplane.Hop{Action: routeplane.Ask, Remember: steady}
}

// via is the gateway of a next hop object.
func (o nexthopObject) via() gatewayKey { return gatewayKey{IfIndex: o.dev, Addr: o.gateway} }

// unsettleNeighbor makes the programs forget choices that depend on the state of a neighbor. From a group of next hop objects, the
// kernel chooses those whose neighbor is valid or has no entry (nexthop_is_good_nh). It does not notify of an entry that it makes,
// only of what becomes of it, so the programs remember choices from a group only while all of its neighbors have entries.
func (f *feed) unsettleNeighbor(key gatewayKey) {
	if !f.choosing {
		return
	}
	f.unsettleAll(func(one *descriptor) (found bool) {
		if one.nexthop == 0 {
			return false
		}
		membersOf(f.nexthops[one.nexthop].group, func(id uint32) bool { found = f.nexthops[id].via() == key; return !found })
		return found
	})
}

// unsettle makes the programs forget the kernel's choices among the next hops of a descriptor.
func (f *feed) unsettle(id uint32) {
	f.descs.all[id].unsettled, f.unsettled = true, true
	f.refresh(id)
}

// unsettleAll is unsettle for the descriptors for which fn returns true.
func (f *feed) unsettleAll(fn func(*descriptor) bool) {
	f.descs.each(func(id uint32, one *descriptor) {
		if !one.unsettled && fn(one) {
			f.unsettle(id)
		}
	})
}

// touch makes the programs forget the choices for the destinations in a prefix, for which the mirror may have another answer
// now.
func (f *feed) touch(p netip.Prefix) {
	if !f.choosing {
		return
	}
	first, n := slotsOf(p)
	f.plane.Touch(p.Addr().Is6(), first, n)
	f.unsettled = true
}

// touchFamily is touch for all destinations of a family, after which the kernel may have decided by more than the mirror knows of.
func (f *feed) touchFamily(i int) {
	f.touch(f.ribs[i].defaultPrefix())
}

// slotsOf returns the slots of the destinations in a prefix. Slots are numbered by two bytes of the address: the first two of
// IPv4, the third and the fourth of IPv6, whose first two differ little.
func slotsOf(p netip.Prefix) (first, n int) {
	b, bits := p.Addr().AsSlice(), p.Bits()
	if p.Addr().Is6() {
		b, bits = b[2:], bits-16
	}
	if bits <= 0 {
		return 0, routeplane.Slots
	}
	return int(binary.BigEndian.Uint16(b)), 1 << max(16-bits, 0)
}

// settleChoices lets the programs remember choices again. The kernel changes devices and routes, and sends its notifications,
// while it holds a lock, which the barrier waits for: what was notified before is complete then. What is notified later is read
// later, and unsettles again.
func (f *feed) settleChoices() {
	now := f.now()
	if !f.unsettled || now-f.settledAt < settleEvery {
		return
	}
	f.settledAt = now
	if _, err := f.rtnl.LinkByIndex(loopback); err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) {
		f.once("barrier", "a device could not be asked for: packets with several next hops ask the kernel meanwhile", "err", err)
		return
	}
	f.unsettled = false
	f.plane.Settle()
	f.descs.each(func(id uint32, one *descriptor) {
		if one.unsettled {
			one.unsettled = false
			f.refresh(id)
		}
	})
}
