// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"cmp"
	"math"
	"net"
	"net/netip"
	"slices"
	"time"

	"culvert/internal/host/nexthop"
	"culvert/internal/scion/scionplane"
)

// A host on the link has answered for itself. Behind a gateway every address has a next hop, whether a host has it or
// not, so strangers can fill the table with made-up addresses and keep them all in use. Eviction therefore begins with
// hosts that share their neighbor (nexthop.Via) with the most others. A host that answers for itself shares it with none.
const (
	// maxHosts bounds the hosts in the fast path.
	maxHosts = 65536
	// evictShare is the divisor for the part of the table that is kept free for hosts whose neighbor has few, and for
	// the part that is evicted at a time. Evicting many at a time spreads the cost of listing all hosts.
	evictShare = 16
	// evictBusyShare is the divisor for the part of the table that is evicted at a time though in use.
	evictBusyShare = 256
	// fewHosts bounds the hosts of a neighbor that has few.
	fewHosts = 16
	// evictPeriod is the least time between two evictions.
	evictPeriod = time.Second
	// hostBusy is how long a host counts as in use after the last packet to it.
	hostBusy = 10 * time.Second
)

// hostCounts counts the hosts in the fast path.
type hostCounts struct {
	total int
	// behind counts the hosts with a known next hop by the neighbor that they are behind.
	behind map[nexthop.Via]int
	// evicted is when hosts were last evicted.
	evicted time.Time
}

// admits tells whether one more host behind a neighbor may enter the fast path.
func (c *hostCounts) admits(via nexthop.Via, limit int) bool {
	return c.total < limit-limit/evictShare || c.total < limit && c.behind[via] < fewHosts
}

// setVia counts a host under the neighbor that it is behind now. The caller sets host.last afterwards.
func (c *hostCounts) setVia(h *host, via nexthop.Via) {
	c.clearVia(h)
	h.placed = true
	c.behind[via]++
}

// clearVia takes a host off the count of its neighbor.
func (c *hostCounts) clearVia(h *host) {
	if !h.placed {
		return
	}
	h.placed = false
	if c.behind[h.last.Via]--; c.behind[h.last.Via] == 0 {
		delete(c.behind, h.last.Via)
	}
}

// remove takes a host off the counts before it leaves the fast path.
func (c *hostCounts) remove(h *host) {
	c.clearVia(h)
	c.total--
}

// evict drops hosts when the table is nearly full. It lists and sorts all hosts without the lock, so that next hops of
// links do not wait for that.
func (t *hostTable) evict(now time.Time) {
	t.mu.Lock()
	due := t.counts.total >= t.limit-t.limit/evictShare && now.Sub(t.counts.evicted) >= evictPeriod
	if due {
		t.counts.evicted = now
	}
	t.mu.Unlock()
	if !due {
		return
	}
	used, err := t.plane.Hosts()
	if err != nil {
		t.errors.log("Hosts that are not in use cannot be found", "err", err)
		return
	}
	all := t.candidates(used, scionplane.HostUsed(now))
	busy := age(scionplane.HostUsed(now.Add(-hostBusy)), scionplane.HostUsed(now))
	chosen, inUse := chooseEvicted(all, busy, max(t.limit/evictShare, 1), max(t.limit/evictBusyShare, 1))
	if inUse > 0 {
		via := chosen[0].via
		t.errors.log("End hosts in use leave the fast path: there is no room for all that are sent to", "hosts", inUse,
			"ifindex", via.IfIndex, "neighbor", net.HardwareAddr(via.MAC[:]))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range chosen {
		if t.hosts[e.host.addr] == e.host && e.host.waiting == nil {
			t.drop(e.host)
		}
	}
}

// evictable is a host in the fast path that may be evicted.
type evictable struct {
	host *host
	via  nexthop.Via
	// age is the time since the last packet to the host, in units of scionplane.HostUsed.
	age uint32
	// younger is how many hosts behind the same neighbor have a lower age.
	younger int
}

// candidates returns the hosts in the fast path that may be evicted. Hosts of an earlier process are left out until their
// next hop is known.
func (t *hostTable) candidates(used map[netip.Addr]uint32, now uint32) []evictable {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]evictable, 0, len(used))
	for addr, at := range used {
		if h := t.hosts[addr]; h != nil && h.placed {
			all = append(all, evictable{host: h, via: h.last.Via, age: age(at, now)})
		}
	}
	return all
}

// age returns the time since a host was used, both in units of scionplane.HostUsed. A time in the future was written
// before the clock was set back, and the host has not been used since then.
func age(at, now uint32) uint32 {
	if at > now+1 {
		return math.MaxUint32
	}
	return now + 1 - at
}

// chooseEvicted returns the hosts to evict, at most most. It begins with hosts whose neighbor has the most hosts with a
// lower age. So the neighbors converge on equal numbers of hosts, or keep all if they have fewer, and each keeps those
// used most recently. All hosts returned have an age above busy but inUse of them, which is at most mostBusy.
func chooseEvicted(all []evictable, busy uint32, most, mostBusy int) (chosen []evictable, inUse int) {
	slices.SortFunc(all, func(a, b evictable) int { return cmp.Compare(a.age, b.age) })
	seen := map[nexthop.Via]int{}
	for i := range all {
		all[i].younger = seen[all[i].via]
		seen[all[i].via]++
	}
	slices.SortFunc(all, func(a, b evictable) int { return cmp.Or(cmp.Compare(b.younger, a.younger), cmp.Compare(b.age, a.age)) })
	for i, e := range all[:min(len(all), most)] {
		if e.age <= busy {
			// The following hosts may be idle, but they belong to neighbors with fewer hosts.
			if inUse == mostBusy {
				return all[:i], inUse
			}
			inUse++
		}
	}
	return all[:min(len(all), most)], inUse
}
