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
	// recentUse is how long the kernel keeps confirming a neighbor after the programs last sent to it.
	recentUse = 30 * time.Second
	// idleCheck is the period in which Run looks whether an idle neighbor is in use again.
	idleCheck = time.Second
	// asksPerTick bounds how many neighbors the kernel is asked for in one tick, since notifications wait meanwhile.
	asksPerTick = 1000
)

// gatewayUse holds the descriptors that lead to one gateway. next is when the kernel is asked for it again, pause the
// time that the previous attempt waited.
type gatewayUse struct {
	descs map[uint32]struct{}
	next  time.Duration
	pause time.Duration
}

// connected is a neighbor that has a next hop of its own. next is when to look whether it has to be confirmed.
type connected struct {
	number uint32
	hop    routeplane.Hop
	next   time.Duration
}

// use records that a descriptor leads to a gateway.
func (f *feed) use(via gatewayKey, id uint32) {
	if !via.Addr.IsValid() {
		return
	}
	u := f.uses[via]
	if u == nil {
		u = &gatewayUse{descs: map[uint32]struct{}{}}
		f.uses[via] = u
		// tickNeighbors asks the kernel for it later, because a running dump may show its entry before that.
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

// handleNeighbor applies an RTM_NEWNEIGH or RTM_DELNEIGH.
func (f *feed) handleNeighbor(m message, notified bool) {
	if len(m.data) < unix.SizeofNdMsg || m.data[0] != unix.AF_INET && m.data[0] != unix.AF_INET6 {
		return
	}
	n, err := netlink.NeighDeserialize(m.data)
	if err != nil {
		f.log.Warn("a netlink neighbor notification cannot be read", "err", err)
		return
	}
	key, ok := neigh.KeyOf(n)
	if !ok || key.Addr.IsMulticast() || !f.fresh(touchKey{kind: unix.RTM_NEWNEIGH, number: uint32(key.IfIndex), addr: key.Addr}, notified) {
		return
	}
	was, known := f.neighbors[key]
	if m.kind == unix.RTM_DELNEIGH {
		delete(f.neighbors, key)
	} else {
		f.neighbors[key] = neigh.EntryOf(n)
		if f.dump.active {
			f.dump.neighbors[key] = struct{}{}
		}
	}
	if now, still := f.neighbors[key]; still != known || now.Valid() != was.Valid() {
		f.unsettleNeighbor(key)
	}
	f.neighborChanged(key)
}

// neighborChanged updates the data plane after a change of a neighbor, and asks the kernel for it where needed.
func (f *feed) neighborChanged(key gatewayKey) {
	n, known := f.neighbors[key]
	if u := f.uses[key]; u != nil {
		for id := range u.descs {
			f.refresh(id)
		}
		switch {
		case !known || n.Stale():
			// The kernel resolves a neighbor when it sends a packet there. It does not notice the programs'
			// packets, so ask for it explicitly.
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

// setConnected adds, changes or removes the next hop of a neighbor on a connected network.
func (f *feed) setConnected(key gatewayKey) {
	n := f.neighbors[key]
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
			f.fail(fmt.Errorf("removing neighbor %s from the data plane: %w", key.Addr, err))
		}
		// A program may just have found the number. It must not send there any more.
		f.setHop(c.number, routeplane.Hop{})
		f.numbers.give(c.number)
	case c != nil:
		c.hop = hop
		f.setHop(c.number, hop)
	case len(f.connected) >= routeplane.MaxNeighbors:
		f.once("neighbors", "too many neighbors: the kernel forwards packets to some", "limit", routeplane.MaxNeighbors)
	default:
		number, found := f.numbers.take()
		if !found {
			return
		}
		f.setHop(number, hop)
		if err := f.plane.SetNeighbor(at, number); err != nil {
			f.numbers.give(number)
			f.once("neighbor", "a neighbor could not be written into the data plane", "neighbor", key.Addr, "err", err)
			return
		}
		f.connected[key] = &connected{number: number, hop: hop, next: f.now() + idleCheck}
	}
}

// setAllConnected calls setConnected for all neighbors, after a change of devices.
func (f *feed) setAllConnected() {
	for key := range f.neighbors {
		f.setConnected(key)
	}
	for key := range f.connected {
		if _, ok := f.neighbors[key]; !ok {
			f.setConnected(key)
		}
	}
}

// ask makes the kernel resolve or confirm a gateway.
func (f *feed) ask(key gatewayKey, u *gatewayUse) {
	wait, pause := f.neighbors[key].Pause(u.pause)
	u.next, u.pause = f.now()+wait, pause
	f.useNeighbor(key)
}

// confirm makes the kernel confirm a neighbor if that is due and the programs send to it. It reports whether it did.
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
	f.useNeighbor(key)
	return true
}

// useNeighbor makes the kernel resolve or confirm a neighbor on a device that is ready.
func (f *feed) useNeighbor(key gatewayKey) {
	if dev, ok := f.devices[key.IfIndex]; !ok || !dev.ready() {
		return
	}
	_, known := f.neighbors[key]
	if err := f.neighbors.Use(f.rtnl, key); err != nil {
		f.once("ask", "the kernel could not be asked for a neighbor", "neighbor", key.Addr, "err", err)
	}
	if n, found := f.neighbors[key]; !known && found && n.Usable() {
		// The kernel has an entry for which no notification has come.
		f.unsettleNeighbor(key)
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

// tickNeighbors makes the kernel resolve or confirm the gateways and neighbors that are due.
func (f *feed) tickNeighbors() {
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

// sweepNeighbors removes the neighbors that a dump has not shown.
func (f *feed) sweepNeighbors() {
	for key := range f.neighbors {
		if _, ok := f.dump.neighbors[key]; !ok {
			delete(f.neighbors, key)
			f.unsettleNeighbor(key)
			f.neighborChanged(key)
		}
	}
}
