// SPDX-License-Identifier: Apache-2.0

package route

import (
	"net/netip"
	"time"

	"culvert/internal/route/routeplane"
)

// descAsk is the descriptor of all routes that the mirror cannot follow.
const descAsk = 0

// severalDevices stands for the devices of a route with several next hops.
const severalDevices = -1

// numberGrace is how long the number of a removed next hop is not given out again. A program may have found it in the
// mirror and be about to look it up.
const numberGrace = time.Second

// descKey identifies a next hop. Routes with equal keys share a descriptor.
type descKey struct {
	// action is Forward, Connected or that of a fixed number. For a next hop object, which can turn into any of
	// them, it is Ask.
	action routeplane.Action
	is6    bool
	// dev may be severalDevices.
	dev     int
	gateway netip.Addr
	nexthop uint32
	mtu     uint32
	// hops are a route's own next hops if it has several, see ownHops.
	hops string
}

// fixed returns the fixed number of a next hop that needs none of its own.
func (k descKey) fixed() (number uint32, ok bool) {
	switch k.action {
	case routeplane.Ask:
		return routeplane.HopAsk, k.nexthop == 0 && k.hops == ""
	case routeplane.Local:
		return routeplane.HopLocal, true
	case routeplane.Unreachable:
		return routeplane.HopUnreachable, true
	case routeplane.Prohibit:
		return routeplane.HopProhibit, true
	case routeplane.Blackhole:
		return routeplane.HopBlackhole, true
	}
	return 0, false
}

// descriptor is a next hop that routes refer to.
type descriptor struct {
	descKey
	refs int
	// value is the number of the next hop in the mirror.
	value uint32
	// condemned means that the kernel may have removed the routes with this next hop without a notification. The
	// programs ask until those routes are gone. Routes added since then have another descriptor.
	condemned bool
	// unsettled means that the programs must not remember the kernel's choices now. See choice.go.
	unsettled bool
	// hop is what the number means, unless it is a fixed one.
	hop routeplane.Hop
	// via is the gateway that hop depends on, if any.
	via gatewayKey
}

// descriptors assigns one descriptor to equal next hops, and numbers to descriptors.
type descriptors struct {
	all     []descriptor
	free    []uint32
	known   map[descKey]uint32
	numbers *numbers
	// onNew and onGone are called for descriptors with a number of their own.
	onNew, onGone func(id uint32)
}

func newDescriptors(n *numbers) *descriptors {
	d := &descriptors{known: map[descKey]uint32{}, numbers: n}
	// This is descAsk, which is never released.
	d.all = append(d.all, descriptor{refs: 1, value: routeplane.HopAsk})
	return d
}

// intern finds or makes the descriptor of a next hop. The caller drops it after it has added the route, which may or
// may not hold it.
func (d *descriptors) intern(k descKey) uint32 {
	if id, ok := d.known[k]; ok {
		return id
	}
	one := descriptor{descKey: k, value: routeplane.HopAsk}
	number, fixed := k.fixed()
	own := false
	if fixed {
		one.value = number
	} else if number, own = d.numbers.take(); own {
		one.value = number
	}
	var id uint32
	if n := len(d.free); n > 0 {
		id = d.free[n-1]
		d.free = d.free[:n-1]
		d.all[id] = one
	} else {
		id = uint32(len(d.all))
		d.all = append(d.all, one)
	}
	d.known[k] = id
	if own {
		d.onNew(id)
	}
	return id
}

// own reports whether the descriptor has a number of its own, whose meaning can change.
func (d *descriptors) own(id uint32) bool { return d.all[id].value >= routeplane.HopFirst }

func (d *descriptors) number(id uint32) uint32 { return d.all[id].value }

func (d *descriptors) hold(id uint32) { d.all[id].refs++ }

func (d *descriptors) release(id uint32) {
	d.all[id].refs--
	d.drop(id)
}

// drop frees the descriptor if no route holds it.
func (d *descriptors) drop(id uint32) {
	one := &d.all[id]
	if one.refs > 0 || id == descAsk {
		return
	}
	if d.known[one.descKey] == id {
		delete(d.known, one.descKey)
	}
	if d.own(id) {
		d.onGone(id)
		d.numbers.give(one.value)
	}
	// A free descriptor is recognized by its reference count of zero.
	*one = descriptor{}
	d.free = append(d.free, id)
}

// condemn marks the descriptors for which fn returns true, and returns those that were not condemned before.
func (d *descriptors) condemn(fn func(*descriptor) bool) (changed []uint32) {
	for id := range d.all {
		one := &d.all[id]
		if id == descAsk || one.refs == 0 || one.condemned || !fn(one) {
			continue
		}
		one.condemned = true
		delete(d.known, one.descKey)
		changed = append(changed, uint32(id))
	}
	return changed
}

// each calls fn for the descriptors with a number of their own.
func (d *descriptors) each(fn func(id uint32, one *descriptor)) {
	for id := range d.all {
		if one := &d.all[id]; one.refs > 0 && d.own(uint32(id)) {
			fn(uint32(id), one)
		}
	}
}

// numbers allocates the numbers of next hops.
type numbers struct {
	next uint32
	// freed are the numbers given back, oldest first.
	freed []freedNumber
	used  int
	now   func() time.Duration
	// exhausted is true once there was no number left.
	exhausted bool
}

type freedNumber struct {
	number uint32
	at     time.Duration
}

func newNumbers(now func() time.Duration) *numbers {
	return &numbers{next: routeplane.HopFirst, now: now}
}

func (n *numbers) take() (number uint32, ok bool) {
	switch {
	case len(n.freed) > 0 && n.now()-n.freed[0].at > numberGrace:
		number = n.freed[0].number
		n.freed = n.freed[1:]
	case n.next < routeplane.MaxHops:
		number = n.next
		n.next++
	default:
		n.exhausted = true
		return 0, false
	}
	n.used++
	return number, true
}

func (n *numbers) give(number uint32) {
	n.used--
	n.freed = append(n.freed, freedNumber{number: number, at: n.now()})
}
