// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"culvert/internal/host/nexthop"
	"culvert/internal/scion/scionplane"
)

// Anybody who can send to the AS names end hosts to the fast path, as many as he likes. So hosts that do not answer are
// few, make room for each other, and are not asked for again and again. For who makes room among the others see hostroom.go.
const (
	// maxUnresolved bounds the hosts being asked for at a time. Each has an entry in the kernel's neighbour table,
	// which by default begins to throw out entries at 512 (gc_thresh2), those of links among them.
	maxUnresolved = 256
	// askTime is what a host has to answer in before another one may take its place.
	askTime = 100 * time.Millisecond
	// unresolvedIdle is when a host that cannot be resolved is dropped, counted from when it was
	// last wanted. The fast path asks again with the next packet to it.
	unresolvedIdle = 30 * time.Second
	// sweepPeriod is how often hosts to drop are looked for.
	sweepPeriod = 10 * time.Second
)

// tracker is the part of nexthop.Resolver that hosts use.
type tracker interface {
	Track(addr, from netip.Addr, report func(nexthop.NextHop)) (stop func())
	TrackLow(addr, from netip.Addr, report func(nexthop.NextHop)) (stop func())
}

// resolverTracker adapts a Resolver.
type resolverTracker struct{ *nexthop.Resolver }

func (r resolverTracker) Track(addr, from netip.Addr, report func(nexthop.NextHop)) func() {
	return r.Resolver.Track(addr, from, report).Stop
}

func (r resolverTracker) TrackLow(addr, from netip.Addr, report func(nexthop.NextHop)) func() {
	return r.Resolver.TrackLow(addr, from, report).Stop
}

// hostMap is the part of a DataPlane that hosts use.
type hostMap interface {
	Hosts() (used map[netip.Addr]uint32, err error)
	SetHost(addr netip.Addr, nh scionplane.NextHop) error
	DeleteHost(addr netip.Addr) error
}

// hostTable keeps the next hops of end hosts that the fast path has asked for.
type hostTable struct {
	from    netip.Addr
	tracker tracker
	plane   hostMap
	// limit bounds the hosts that the fast path has.
	limit int
	// usable tells whether the fast path can send through a device.
	usable func(ifIndex int) bool
	errors sparing

	mu    sync.Mutex
	hosts map[netip.Addr]*host
	// unresolved holds *host that the fast path does not have, the one asked for longest first.
	unresolved *list.List
	backOff    backOff
	room       room
}

type host struct {
	addr netip.Addr
	// wanted is when the fast path last asked for it, asked when its neighbour was first asked.
	wanted, asked time.Time
	// place is that in the list of unresolved hosts, nil for a host that the fast path has.
	place *list.Element
	// seen says that there has been a finding since this process follows it.
	seen bool
	// last is what was found last.
	last nexthop.NextHop
	stop func()
}

func newHostTable(from netip.Addr, t tracker, plane hostMap, usable func(int) bool) *hostTable {
	return &hostTable{
		from:       from,
		tracker:    t,
		plane:      plane,
		limit:      maxHosts,
		usable:     usable,
		hosts:      map[netip.Addr]*host{},
		unresolved: list.New(),
		backOff:    newBackOff(),
		room:       room{behind: map[nexthop.Via]int{}},
	}
}

// want starts or renews the following of a host. Hosts of the other IP version are left to the
// slow path, whose internal socket cannot send to them either.
func (t *hostTable) want(addr netip.Addr, now time.Time) {
	addr = addr.Unmap()
	if addr.Is4() != t.from.Is4() {
		return
	}
	t.makeRoom(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.hosts[addr]; h != nil {
		h.wanted = now
		return
	}
	if t.room.taken >= t.limit || !t.backOff.over(addr, now) || !t.roomToAsk(now) {
		return
	}
	h := &host{addr: addr, wanted: now, asked: now}
	h.place = t.unresolved.PushBack(h)
	t.follow(h)
}

// adopt follows a host that the fast path has from an earlier process.
func (t *hostTable) adopt(addr netip.Addr, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.room.taken++
	t.follow(&host{addr: addr.Unmap(), wanted: now})
}

// follow has a host's next hop reported; the caller holds the lock.
func (t *hostTable) follow(h *host) {
	t.hosts[h.addr] = h
	h.stop = t.tracker.TrackLow(h.addr, t.from, func(nh nexthop.NextHop) { t.found(h, nh) })
}

// roomToAsk tells whether one more host may be asked for. The caller holds the lock.
func (t *hostTable) roomToAsk(now time.Time) bool {
	if t.unresolved.Len() < maxUnresolved {
		return true
	}
	oldest := t.unresolved.Front().Value.(*host)
	if now.Sub(oldest.asked) < askTime {
		return false
	}
	t.giveUp(oldest, now)
	return true
}

// giveUp drops a host that does not answer, in favour of others. The caller holds the lock.
func (t *hostTable) giveUp(h *host, now time.Time) {
	t.backOff.add(h.addr, now)
	t.drop(h)
}

// found passes a finding on to the fast path.
func (t *hostTable) found(h *host, nh nexthop.NextHop) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hosts[h.addr] != h {
		return
	}
	if !nh.Resolved() && !nh.Kernel {
		t.lost(h, time.Now())
		return
	}
	if h.place != nil {
		t.backOff.forget(h.addr)
		if !t.room.admits(nh.Via, t.limit) {
			t.drop(h)
			return
		}
		t.unresolved.Remove(h.place)
		h.place = nil
		t.room.taken++
	}
	t.room.move(h, nh.Via)
	h.last = nh
	t.pass(h)
}

// pass tells the fast path what was found last of a host; the caller holds the lock.
func (t *hostTable) pass(h *host) {
	hop := NextHop(h.last)
	if !t.usable(h.last.IfIndex) {
		hop = scionplane.NextHop{} // the kernel's
	}
	if err := t.plane.SetHost(h.addr, hop); err != nil {
		t.errors.log("Fast path did not take a host", "host", h.addr, "err", err)
	}
}

// lost takes a host away from the fast path that has no next hop now. The caller holds the lock.
func (t *hostTable) lost(h *host, now time.Time) {
	if h.place != nil {
		return
	}
	t.room.leave(h)
	t.forget(h)
	h.asked = now
	h.place = t.unresolved.PushBack(h)
	if t.unresolved.Len() > maxUnresolved {
		t.giveUp(t.unresolved.Front().Value.(*host), now)
	}
}

// drop ends the following of a host; the caller holds the lock.
func (t *hostTable) drop(h *host) {
	delete(t.hosts, h.addr)
	h.stop()
	if h.place != nil {
		t.unresolved.Remove(h.place)
		return
	}
	t.room.leave(h)
	t.forget(h)
}

func (t *hostTable) forget(h *host) {
	if err := t.plane.DeleteHost(h.addr); err != nil {
		t.errors.log("Fast path did not forget a host", "host", h.addr, "err", err)
	}
}

// sweep drops hosts that cannot be resolved and are no longer wanted. The others stay: dropping
// one in use would send a few packets the slow way and could overtake them with later ones.
func (t *hostTable) sweep(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.backOff.expire(now)
	for e := t.unresolved.Front(); e != nil; {
		h := e.Value.(*host)
		e = e.Next()
		if now.Sub(h.wanted) > unresolvedIdle {
			t.drop(h)
		}
	}
}
