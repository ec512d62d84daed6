// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/neigh"
	"culvert/internal/route/routeplane"
)

const (
	// recentUse is how long ago the programs may have sent to a neighbour that is still kept alive.
	recentUse = 30 * time.Second
	// idleCheck is how often a neighbour that was not in use is looked at again.
	idleCheck = time.Second
	// asksPerTick bounds how many neighbours are asked for before notifications are read again.
	asksPerTick = 1000
)

// gatewayUse holds the descriptors that one gateway is behind.
type gatewayUse struct {
	descs map[uint32]struct{}
	next  time.Duration
	pause time.Duration
}

// connected is a neighbour that has a next hop of its own.
type connected struct {
	number uint32
	hop    routeplane.Hop
	next   time.Duration
}

func (f *feed) use(via gatewayKey, id uint32) {
	if !via.Addr.IsValid() {
		return
	}
	u := f.uses[via]
	if u == nil {
		u = &gatewayUse{descs: map[uint32]struct{}{}}
		f.uses[via] = u
		// The tick asks for it: a dump may bring its entry soon.
	}
	u.descs[id] = struct{}{}
}

func (f *feed) unuse(via gatewayKey, id uint32) {
	if u := f.uses[via]; u != nil {
		delete(u.descs, id)
		if len(u.descs) == 0 {
			delete(f.uses, via)
		}
	}
}

// handleNeighbour takes in RTM_NEWNEIGH and RTM_DELNEIGH.
func (f *feed) handleNeighbour(m message, told bool) {
	if len(m.data) < unix.SizeofNdMsg || m.data[0] != unix.AF_INET && m.data[0] != unix.AF_INET6 {
		return
	}
	n, err := netlink.NeighDeserialize(m.data)
	if err != nil {
		f.log.Warn("a netlink neighbour notification cannot be read", "err", err)
		return
	}
	key, ok := neigh.KeyOf(n)
	if !ok || key.Addr.IsMulticast() || !f.fresh(touchKey{kind: unix.RTM_NEWNEIGH, number: uint32(key.IfIndex), addr: key.Addr}, told) {
		return
	}
	if m.kind == unix.RTM_DELNEIGH {
		delete(f.neighbours, key)
	} else {
		f.neighbours[key] = neigh.EntryOf(n)
		if f.dump.active {
			f.dump.neighbours[key] = struct{}{}
		}
	}
	f.neighbourChanged(key)
}

// neighbourChanged brings the data plane up to date.
func (f *feed) neighbourChanged(key gatewayKey) {
	n, known := f.neighbours[key]
	if u := f.uses[key]; u != nil {
		for id := range u.descs {
			f.refresh(id)
		}
		switch {
		case !known || n.Stale():
			// The kernel would ask again with the next packet that it sends. The programs send without
			// the kernel noticing, so ask in its place.
			f.ask(key, u)
		case n.Usable():
			u.pause, u.next = 0, f.now()+neigh.ConfirmEvery
		}
	}
	f.setConnected(key)
	if c := f.connected[key]; c != nil && n.Stale() {
		c.next = 0
		f.confirm(key, c)
	}
}

// setConnected gives a neighbour a next hop, changes it, or takes it back.
func (f *feed) setConnected(key gatewayKey) {
	n := f.neighbours[key]
	c := f.connected[key]
	hop, ok := routeplane.Hop{}, n.Usable()
	if ok {
		dev, found := f.devices[key.IfIndex]
		if ok = found && dev.ready(); ok {
			hop, ok = f.outOf(key.IfIndex, key.Addr.Is6())
		}
	}
	hop.Action, hop.DstMAC = routeplane.Forward, n.MAC
	at := routeplane.Neighbor{Dev: key.IfIndex, Addr: key.Addr}
	switch {
	case c == nil && !ok, c != nil && ok && c.hop == hop:
	case !ok:
		delete(f.connected, key)
		if err := f.plane.DeleteNeighbor(at); err != nil {
			f.fail(fmt.Errorf("taking neighbour %s out of the data plane: %w", key.Addr, err))
		}
		// A program that has just found the number must not send there any more.
		f.setHop(c.number, routeplane.Hop{})
		f.numbers.give(c.number)
	case c != nil:
		c.hop = hop
		f.setHop(c.number, hop)
	case len(f.connected) >= routeplane.MaxNeighbors:
		f.once("neighbours", "too many neighbours: packets to some wait for the kernel", "limit", routeplane.MaxNeighbors)
	default:
		number, found := f.numbers.take()
		if !found {
			return
		}
		f.setHop(number, hop)
		if err := f.plane.SetNeighbor(at, number); err != nil {
			f.numbers.give(number)
			f.once("neighbour", "a neighbour could not be written into the data plane", "neighbour", key.Addr, "err", err)
			return
		}
		f.connected[key] = &connected{number: number, hop: hop, next: f.now() + idleCheck}
	}
}

// setAllConnected follows a change of devices.
func (f *feed) setAllConnected() {
	for key := range f.neighbours {
		f.setConnected(key)
	}
	for key := range f.connected {
		if _, ok := f.neighbours[key]; !ok {
			f.setConnected(key)
		}
	}
}

// ask has the kernel resolve or confirm a gateway.
func (f *feed) ask(key gatewayKey, u *gatewayUse) {
	wait, pause := f.neighbours[key].Pause(u.pause)
	u.next, u.pause = f.now()+wait, pause
	f.useNeighbour(key)
}

// confirm has the kernel confirm a neighbour that the programs send to, and returns whether it has.
func (f *feed) confirm(key gatewayKey, c *connected) bool {
	now := f.now()
	if now < c.next {
		return false
	}
	used := f.plane.HopUsed(c.number)
	if used == 0 || now-used > recentUse {
		c.next = now + idleCheck
		return false
	}
	c.next = now + neigh.ConfirmEvery
	f.useNeighbour(key)
	return true
}

func (f *feed) useNeighbour(key gatewayKey) {
	if dev, ok := f.devices[key.IfIndex]; !ok || !dev.ready() {
		return
	}
	_, known := f.neighbours[key]
	if err := f.neighbours.Use(f.rtnl, key); err != nil {
		f.once("ask", "the kernel could not be asked for a neighbour", "neighbour", key.Addr, "err", err)
	}
	if n, found := f.neighbours[key]; !known && found && n.Usable() {
		// One that had not been reported yet.
		for id := range f.descriptorsOf(key) {
			f.refresh(id)
		}
		f.setConnected(key)
	}
}

func (f *feed) descriptorsOf(key gatewayKey) map[uint32]struct{} {
	if u := f.uses[key]; u != nil {
		return u.descs
	}
	return nil
}

// tickNeighbours asks for what is due.
func (f *feed) tickNeighbours() {
	now, asked := f.now(), 0
	for key, u := range f.uses {
		if now >= u.next && asked < asksPerTick {
			f.ask(key, u)
			asked++
		}
	}
	for key, c := range f.connected {
		if asked < asksPerTick && f.confirm(key, c) {
			asked++
		}
	}
}

// sweepNeighbours forgets those that a dump has not shown.
func (f *feed) sweepNeighbours() {
	for key := range f.neighbours {
		if _, ok := f.dump.neighbours[key]; !ok {
			delete(f.neighbours, key)
			f.neighbourChanged(key)
		}
	}
}
