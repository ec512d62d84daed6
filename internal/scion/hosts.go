// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"github.com/scionproto/scion/pkg/log"

	"culvert/internal/datapath"
	"culvert/internal/nexthop"
)

const (
	// maxHosts bounds the end hosts being followed; the least recently wanted makes room.
	maxHosts = 65536
	// unresolvedIdle is when a host that cannot be resolved is dropped, counted from when it was
	// last wanted. The fast path asks again with the next packet to it.
	unresolvedIdle = 30 * time.Second
	// sweepPeriod is how often hosts to drop are looked for.
	sweepPeriod = 10 * time.Second
)

// tracker is the part of nexthop.Resolver that hosts use.
type tracker interface {
	Track(addr, from netip.Addr, report func(nexthop.NextHop)) (stop func())
}

// resolverTracker adapts a Resolver.
type resolverTracker struct{ *nexthop.Resolver }

func (r resolverTracker) Track(addr, from netip.Addr, report func(nexthop.NextHop)) func() {
	return r.Resolver.Track(addr, from, report).Stop
}

// hostMap is the part of a DataPlane that hosts use.
type hostMap interface {
	SetHost(addr netip.Addr, nh datapath.NextHop) error
	DeleteHost(addr netip.Addr) error
}

// hostTable keeps the next hops of end hosts that the fast path has asked for.
type hostTable struct {
	from    netip.Addr
	tracker tracker
	plane   hostMap
	limit   int
	// usable tells whether the fast path can send through a device.
	usable func(ifIndex int) bool

	mu    sync.Mutex
	hosts map[netip.Addr]*list.Element
	// recent holds *host, the most recently wanted first.
	recent *list.List
}

type host struct {
	addr     netip.Addr
	wanted   time.Time
	resolved bool
	last     nexthop.NextHop // what was found last
	stop     func()
}

func newHostTable(from netip.Addr, t tracker, plane hostMap, usable func(int) bool) *hostTable {
	return &hostTable{
		from:    from,
		tracker: t,
		plane:   plane,
		limit:   maxHosts,
		usable:  usable,
		hosts:   map[netip.Addr]*list.Element{},
		recent:  list.New(),
	}
}

// want starts or renews the following of a host. Hosts of the other IP version are left to the
// slow path, whose internal socket cannot send to them either.
func (t *hostTable) want(addr netip.Addr, now time.Time) { t.follow(addr, now, false) }

// adopt follows a host whose next hop the fast path has from an earlier process.
func (t *hostTable) adopt(addr netip.Addr, now time.Time) { t.follow(addr, now, true) }

func (t *hostTable) follow(addr netip.Addr, now time.Time, resolved bool) {
	addr = addr.Unmap()
	if addr.Is4() != t.from.Is4() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.hosts[addr]; e != nil {
		e.Value.(*host).wanted = now
		t.recent.MoveToFront(e)
		return
	}
	if t.recent.Len() >= t.limit {
		t.drop(t.recent.Back())
	}
	h := &host{addr: addr, wanted: now, resolved: resolved}
	t.hosts[addr] = t.recent.PushFront(h)
	h.stop = t.tracker.Track(addr, t.from, func(nh nexthop.NextHop) { t.found(h, nh) })
}

// found passes a finding on to the fast path.
func (t *hostTable) found(h *host, nh nexthop.NextHop) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.hosts[h.addr]
	if e == nil || e.Value.(*host) != h {
		return
	}
	h.last = nh
	t.pass(h)
}

// pass tells the fast path what was found last of a host; the caller holds the lock.
func (t *hostTable) pass(h *host) {
	var err error
	if nh := h.last; nh.Resolved() && t.usable(nh.IfIndex) {
		h.resolved = true
		err = t.plane.SetHost(h.addr, NextHop(nh))
	} else if h.resolved {
		h.resolved = false
		err = t.plane.DeleteHost(h.addr)
	}
	if err != nil {
		log.Error("Fast path did not take a host", "host", h.addr, "err", err)
	}
}

// drop forgets a host; the caller holds the lock.
func (t *hostTable) drop(e *list.Element) {
	h := t.recent.Remove(e).(*host)
	delete(t.hosts, h.addr)
	h.stop()
	if !h.resolved {
		return
	}
	if err := t.plane.DeleteHost(h.addr); err != nil {
		log.Error("Fast path did not forget a host", "host", h.addr, "err", err)
	}
}

// sweep drops hosts that cannot be resolved and are no longer wanted. The others stay: dropping
// one in use would send a few packets the slow way and could overtake them with later ones.
func (t *hostTable) sweep(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := t.recent.Back(); e != nil; {
		h, next := e.Value.(*host), e.Prev()
		if now.Sub(h.wanted) <= unresolvedIdle {
			return
		}
		if !h.resolved {
			t.drop(e)
		}
		e = next
	}
}
