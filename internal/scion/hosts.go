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

// Whoever can send to the AS can name any number of end hosts to the fast path. So the number of unresolved hosts is
// bounded, the oldest of them gives way to a new one, and a host that has not answered is resolved again only after a
// pause. For the eviction of resolved hosts see hostevict.go.
const (
	// maxUnresolved bounds the hosts that are being resolved. Each has an entry in the kernel's neighbor table, which by
	// default begins to evict entries at 512 (gc_thresh2), and those of links may be among them.
	maxUnresolved = 256
	// resolveTime is the least time that a host has to answer in before it gives way to another.
	resolveTime = 100 * time.Millisecond
	// unresolvedIdle is how long a host that cannot be resolved is followed after the fast path has last asked for it.
	// The fast path asks again with the next packet to it.
	unresolvedIdle = 30 * time.Second
	// sweepPeriod is how often hosts to drop are looked for.
	sweepPeriod = 10 * time.Second
)

// tracker is the part of nexthop.Resolver that hosts use.
type tracker interface {
	Track(addr, from netip.Addr, report func(nexthop.NextHop)) (stop func())
	TrackLow(addr, from netip.Addr, report func(nexthop.NextHop)) (stop func())
}

// resolverTracker makes a nexthop.Resolver a tracker.
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

// hostTable follows the next hops of the end hosts that the fast path asks for.
type hostTable struct {
	// from is the internal address, from which hosts are resolved.
	from    netip.Addr
	tracker tracker
	plane   hostMap
	// limit bounds the hosts in the fast path.
	limit int
	// usable tells whether the fast path can send through a device.
	usable func(ifIndex int) bool
	errors limitedLog

	mu    sync.Mutex
	hosts map[netip.Addr]*host
	// unresolved holds the *host that are not in the fast path, the one that has been resolved for longest first.
	unresolved *list.List
	backOff    backOff
	counts     hostCounts
}

type host struct {
	addr netip.Addr
	// wanted is when the fast path last asked for the host.
	wanted time.Time
	// asked is when its resolution began.
	asked time.Time
	// waiting is the host's element of hostTable.unresolved, nil for a host in the fast path.
	waiting *list.Element
	// placed tells whether hostCounts.behind counts the host, under last.Via.
	placed bool
	// last is the last next hop that was found.
	last nexthop.NextHop
	// stop ends the tracking.
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
		counts:     hostCounts{behind: map[nexthop.Via]int{}},
	}
}

// want starts following a host, or notes that the fast path has asked for it again. Hosts of the other IP version are
// not followed: the slow path's internal socket cannot send to them either.
func (t *hostTable) want(addr netip.Addr, now time.Time) {
	addr = addr.Unmap()
	if addr.Is4() != t.from.Is4() {
		return
	}
	t.evict(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.hosts[addr]; h != nil {
		h.wanted = now
		return
	}
	if t.counts.total >= t.limit || !t.backOff.over(addr, now) || !t.canAsk(now) {
		return
	}
	h := &host{addr: addr, wanted: now, asked: now}
	h.waiting = t.unresolved.PushBack(h)
	t.follow(h)
}

// adopt follows a host that an earlier process has put into the fast path.
func (t *hostTable) adopt(addr netip.Addr, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.total++
	t.follow(&host{addr: addr.Unmap(), wanted: now})
}

// follow tracks the next hop of a host. The caller holds the lock.
func (t *hostTable) follow(h *host) {
	t.hosts[h.addr] = h
	h.stop = t.tracker.TrackLow(h.addr, t.from, func(nh nexthop.NextHop) { t.found(h, nh) })
}

// canAsk tells whether one more host may be resolved. It gives up the oldest unresolved host if that makes it possible.
// The caller holds the lock.
func (t *hostTable) canAsk(now time.Time) bool {
	if t.unresolved.Len() < maxUnresolved {
		return true
	}
	oldest := t.unresolved.Front().Value.(*host)
	if now.Sub(oldest.asked) < resolveTime {
		return false
	}
	t.giveUp(oldest, now)
	return true
}

// giveUp drops a host that does not answer and begins its pause. The caller holds the lock.
func (t *hostTable) giveUp(h *host, now time.Time) {
	t.backOff.add(h.addr, now)
	t.drop(h)
}

// found handles a report about the next hop of a host.
func (t *hostTable) found(h *host, nh nexthop.NextHop) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hosts[h.addr] != h {
		return
	}
	if !nh.Resolved() && !nh.Kernel {
		t.loseHost(h, time.Now())
		return
	}
	if h.waiting != nil {
		t.backOff.forget(h.addr)
		if !t.counts.admits(nh.Via, t.limit) {
			t.drop(h)
			return
		}
		t.unresolved.Remove(h.waiting)
		h.waiting = nil
		t.counts.total++
	}
	t.counts.setVia(h, nh.Via)
	h.last = nh
	t.pass(h)
}

// pass writes the last next hop of a host to the fast path. The caller holds the lock.
func (t *hostTable) pass(h *host) {
	hop := NextHop(h.last)
	if !t.usable(h.last.IfIndex) {
		hop = scionplane.NextHop{} // only the kernel can send there
	}
	if err := t.plane.SetHost(h.addr, hop); err != nil {
		t.errors.log("Fast path did not take a host", "host", h.addr, "err", err)
	}
}

// loseHost takes a host that has no next hop any more out of the fast path. It is resolved anew. The caller holds the
// lock.
func (t *hostTable) loseHost(h *host, now time.Time) {
	if h.waiting != nil {
		return
	}
	t.counts.remove(h)
	t.forget(h)
	h.asked = now
	h.waiting = t.unresolved.PushBack(h)
	if t.unresolved.Len() > maxUnresolved {
		t.giveUp(t.unresolved.Front().Value.(*host), now)
	}
}

// drop stops following a host and takes it out of the fast path. The caller holds the lock.
func (t *hostTable) drop(h *host) {
	delete(t.hosts, h.addr)
	h.stop()
	if h.waiting != nil {
		t.unresolved.Remove(h.waiting)
		return
	}
	t.counts.remove(h)
	t.forget(h)
}

func (t *hostTable) forget(h *host) {
	if err := t.plane.DeleteHost(h.addr); err != nil {
		t.errors.log("Fast path did not forget a host", "host", h.addr, "err", err)
	}
}

// sweep drops unresolved hosts that the fast path no longer asks for. Resolved hosts stay: the packets to a dropped host
// that is in use would take the slow path until it is resolved again, and later ones could overtake them.
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
