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

// A host on the wire has answered, but behind a gateway every address has a next hop, whether anybody has it or not. So
// strangers can fill the table with addresses that nobody has, and keep them all in use. Those who pay for it are hosts that
// share their neighbour (nexthop.Via) with the most others: a host that answers for itself shares it with nobody.
const (
	// maxHosts bounds the hosts that the fast path has.
	maxHosts = 65536
	// roomShare is the part of them that is kept free for hosts which share their neighbour with few, and the part that
	// makes room at a time: looking for the least recently used is work.
	roomShare = 16
	// busyShare is the part that makes room at a time though in use.
	busyShare = 256
	// fewHosts is how many hosts are few.
	fewHosts = 16
	// roomPeriod is how often room is made at most.
	roomPeriod = time.Second
	// hostBusy is how long ago a host in use was last sent to.
	hostBusy = 10 * time.Second
)

// room counts the hosts that the fast path has.
type room struct {
	taken int
	// behind counts those of whom something has been found by the neighbour that they are behind.
	behind map[nexthop.Via]int
	// made is when room was last made.
	made time.Time
}

// admits tells whether there is room for one more host behind a neighbour.
func (r *room) admits(via nexthop.Via, limit int) bool {
	return r.taken < limit-limit/roomShare || r.taken < limit && r.behind[via] < fewHosts
}

// move notes what neighbour a host is behind.
func (r *room) move(h *host, via nexthop.Via) {
	r.unmove(h)
	h.seen = true
	r.behind[via]++
}

func (r *room) unmove(h *host) {
	if !h.seen {
		return
	}
	h.seen = false
	if r.behind[h.last.Via]--; r.behind[h.last.Via] == 0 {
		delete(r.behind, h.last.Via)
	}
}

// leave is for a host that the fast path is about to forget.
func (r *room) leave(h *host) {
	r.unmove(h)
	r.taken--
}

// makeRoom drops hosts when there are too many. The lock is not held while the fast path is asked for them all, nor while they
// are sorted: findings about links must not wait for that.
func (t *hostTable) makeRoom(now time.Time) {
	t.mu.Lock()
	short := t.room.taken >= t.limit-t.limit/roomShare && now.Sub(t.room.made) >= roomPeriod
	if short {
		t.room.made = now
	}
	t.mu.Unlock()
	if !short {
		return
	}
	used, err := t.plane.Hosts()
	if err != nil {
		t.errors.log("Hosts that are not in use cannot be found", "err", err)
		return
	}
	all := t.guests(used, scionplane.HostUsed(now))
	busy := age(scionplane.HostUsed(now.Add(-hostBusy)), scionplane.HostUsed(now))
	leaving, inUse := leave(all, busy, max(t.limit/roomShare, 1), max(t.limit/busyShare, 1))
	if inUse > 0 {
		via := leaving[0].via
		t.errors.log("End hosts in use leave the fast path: there is no room for all that are sent to", "hosts", inUse,
			"ifindex", via.IfIndex, "neighbour", net.HardwareAddr(via.MAC[:]))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range leaving {
		if t.hosts[g.host.addr] == g.host && g.host.place == nil {
			t.drop(g.host)
		}
	}
}

// guest is a host that may have to make room.
type guest struct {
	host *host
	via  nexthop.Via
	// age is how long ago it was sent to, more how many hosts behind the same neighbour have been since.
	age  uint32
	more int
}

// guests are the hosts that the fast path has. Those of an earlier process stay until it is known whom they are behind.
func (t *hostTable) guests(used map[netip.Addr]uint32, now uint32) []guest {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]guest, 0, len(used))
	for addr, at := range used {
		if h := t.hosts[addr]; h != nil && h.seen {
			all = append(all, guest{host: h, via: h.last.Via, age: age(at, now)})
		}
	}
	return all
}

// age is how long ago a host was used. A time in the future was written before the clock went back: nobody has used that
// host since.
func age(at, now uint32) uint32 {
	if at > now+1 {
		return math.MaxUint32
	}
	return now + 1 - at
}

// leave chooses hosts to make room. First goes who shares his neighbour with the most that were used more recently, so that in
// the end each neighbour has as many hosts as every other, or all that it wants, and those used most recently. All the hosts
// chosen are older than busy but inUse of them.
func leave(all []guest, busy uint32, most, mostBusy int) (chosen []guest, inUse int) {
	slices.SortFunc(all, func(a, b guest) int { return cmp.Compare(a.age, b.age) })
	seen := map[nexthop.Via]int{}
	for i := range all {
		all[i].more = seen[all[i].via]
		seen[all[i].via]++
	}
	slices.SortFunc(all, func(a, b guest) int { return cmp.Or(cmp.Compare(b.more, a.more), cmp.Compare(b.age, a.age)) })
	for i, g := range all[:min(len(all), most)] {
		if g.age <= busy {
			// The next ones may be idle, but others need not pay for them.
			if inUse == mostBusy {
				return all[:i], inUse
			}
			inUse++
		}
	}
	return all[:min(len(all), most)], inUse
}
