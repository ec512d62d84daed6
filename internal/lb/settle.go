// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"culvert/internal/lb/health"
	"culvert/internal/lb/lbplane"
)

/*
settling says which addresses may be announced: of VIPs of which at least one has somebody who takes new flows, and is not
drained.

One whose backends are only just being found is not announced before all of them are: flows that a router moves here
are not in the flow table, and a ring that has a part of the backends would send most of them to the wrong ones. So after
the start of a new VIP, and after a time in which nobody has answered, its backends are waited for that nobody has asked
yet, and those that have answered but not often enough. What is announced stays so whoever else comes and goes.
*/
type settling struct {
	vips []candidate
	open map[Service]bool // those that have settled
}

// candidate is a VIP that may be announced, once its backends have settled.
type candidate struct {
	service Service
	drained bool
	since   time.Time // when it has begun to have somebody who takes new flows, zero if before the process
	checked []lbplane.BackendID
}

// update takes in a new state; old is what was known before.
func (w *settling) update(s *State, old, now live) {
	var vips []candidate
	open := make(map[Service]bool)
	for _, v := range s.VIPs {
		if !s.takes(&v, now) {
			continue
		}
		c := candidate{service: v.Service, drained: v.Drained}
		n := slices.IndexFunc(w.vips, func(c candidate) bool { return c.service == v.Service })
		switch {
		case n >= 0:
			c.since = w.vips[n].since
		case v.Check != nil && !s.takes(&v, old):
			c.since = time.Now()
		}
		if v.Check != nil {
			for _, b := range v.Backends {
				if b.Share() > 0 {
					c.checked = append(c.checked, b.ID)
				}
			}
		}
		open[v.Service] = w.open[v.Service]
		vips = append(vips, c)
	}
	w.vips, w.open = vips, open
}

// prefixes are the addresses that may be announced now.
func (w *settling) prefixes(result func(lbplane.BackendID) health.Result) []netip.Prefix {
	var all []netip.Prefix
	for _, c := range w.vips {
		if !w.open[c.service] {
			w.open[c.service] = c.settled(result)
		}
		if w.open[c.service] && !c.drained {
			all = append(all, netip.PrefixFrom(c.service.Addr, c.service.Addr.BitLen()))
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// settled tells whether all backends have been found up, or down by a check that has begun since somebody takes new flows: one
// that began before may have failed for what kept all of them away.
func (c *candidate) settled(result func(lbplane.BackendID) health.Result) bool {
	return !slices.ContainsFunc(c.checked, func(backend lbplane.BackendID) bool {
		r := result(backend)
		return r.State == health.Unknown || r.Rising || r.State == health.Down && r.Asked.Before(c.since)
	})
}

// settle sees what may be announced now.
func (r *runner) settle() {
	result := r.health.result
	if r.unchecked { // which has been told: nothing will be found
		result = func(lbplane.BackendID) health.Result { return health.Result{State: health.Up} }
	}
	if all := r.settling.prefixes(result); !slices.Equal(all, r.announced) {
		r.announced, r.told = all, false
	}
}

// announce tells the routers; what fails is tried again.
func (r *runner) announce(ctx context.Context) {
	if r.Announcer == nil {
		r.told = true
		return
	}
	err := r.Announcer.Set(ctx, r.announced)
	r.failing(ctx, "announcing VIPs", err)
	if err != nil {
		return
	}
	r.told, r.spoken = true, true
	r.Log.Info("addresses to announce", "vips", fmt.Sprint(r.announced))
}
