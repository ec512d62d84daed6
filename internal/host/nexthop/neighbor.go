// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/neigh"
)

// neighborUse holds the targets whose next hop is one neighbor. next is when the kernel is asked for it
// again, pause the time that the previous attempt waited.
type neighborUse struct {
	targets map[*Target]struct{}
	urgent  int // targets that are not of low priority
	next    time.Time
	pause   time.Duration
}

// setRoute moves the target from its old neighbor to the new one. It asks the kernel for a neighbor
// that no other target uses.
func (r *Resolver) setRoute(t *Target, to route) {
	old := t.route.via
	t.route = to
	if old == to.via {
		return
	}
	if use := r.uses[old]; use != nil {
		delete(use.targets, t)
		if !t.low {
			use.urgent--
		}
		if len(use.targets) == 0 {
			delete(r.uses, old)
			r.release(old, t.low)
		}
	}
	if !to.via.Addr.IsValid() {
		return
	}
	use, known := r.uses[to.via]
	if !known {
		use = &neighborUse{targets: map[*Target]struct{}{}}
		r.uses[to.via] = use
	}
	use.targets[t] = struct{}{}
	if !t.low {
		use.urgent++
	}
	if !known {
		r.askFor(to.via, use, time.Now())
	}
}

// release removes a neighbor of low priority that has not answered from the kernel's table, which strangers could
// otherwise fill up. Permanent entries and those that someone else manages stay.
func (r *Resolver) release(key neigh.Key, low bool) {
	n, known := r.neighbors[key]
	if !low || known && (n.Managed || n.Usable()) {
		return
	}
	err := r.handle.NeighDel(&netlink.Neigh{LinkIndex: key.IfIndex, IP: key.Addr.AsSlice()})
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
		r.onError(fmt.Errorf("removing neighbor %s, which does not answer, from the kernel's table: %w", key.Addr, err))
	}
}

// askDue asks the kernel for the neighbors that are due: first the urgent ones, then at most lowAsks of low priority.
func (r *Resolver) askDue(now time.Time) {
	low := 0
	for _, urgent := range []bool{true, false} {
		for key, use := range r.uses {
			if use.urgent > 0 != urgent || !now.After(use.next) {
				continue
			}
			if !urgent {
				if low++; low > lowAsks {
					return
				}
			}
			r.askFor(key, use, now)
		}
	}
}

// neighborChanged handles a new state of a neighbor in use.
func (r *Resolver) neighborChanged(key neigh.Key, use *neighborUse) {
	n, known := r.neighbors[key]
	switch {
	case !known || n.Stale():
		// The kernel resolves a neighbor when it sends a packet there. It does not notice the fast
		// path's packets, so ask for it explicitly.
		r.askFor(key, use, time.Now())
	case n.Usable():
		use.pause = 0
		use.next = time.Now().Add(neigh.ConfirmEvery)
	}
	for t := range use.targets {
		r.update(t)
	}
}

// askFor makes the kernel resolve or confirm a neighbor as if a packet were sent to it now.
func (r *Resolver) askFor(key neigh.Key, use *neighborUse, now time.Time) {
	wait, pause := r.neighbors[key].Pause(use.pause)
	use.pause, use.next = pause, now.Add(wait)
	if dev, ok := r.devices[key.IfIndex]; !ok || !dev.usable {
		return
	}
	ask := r.neighbors.Use
	if _, known := r.neighbors[key]; !known && use.urgent == 0 {
		ask = r.neighbors.Begin
	}
	if err := ask(r.handle, key); err != nil {
		r.onError(fmt.Errorf("asking for neighbor %s: %w", key.Addr, err))
	}
}
