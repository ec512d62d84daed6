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
settling decides which addresses may be announced. An address may be announced if it has a VIP that is not drained and has
a backend for new flows.

A VIP is not announced before the health of all its backends is known. A router that sees the announcement moves flows
here that are not in the flow table, and a ring with some of the backends would assign most of them to the wrong ones. So
after a VIP is added, and after a time without any backend, settling waits for backends that have not been probed yet and
for those that have passed fewer than Rise checks. A VIP that is announced stays so when backends come and go.
*/
type settling struct {
	vips []candidate
	open map[Service]bool // VIPs whose backends have settled
}

// candidate is a VIP that may be announced once its backends have settled.
type candidate struct {
	service Service
	drained bool
	since   time.Time // since when it has a backend for new flows, zero if since before the process
	checked []lbplane.BackendID
}

// update takes over a new state. old is the live data from before, now that of the new state.
func (w *settling) update(s *State, old, now live) {
	var vips []candidate
	open := make(map[Service]bool)
	for _, v := range s.VIPs {
		if !s.serves(&v, now) {
			continue
		}
		c := candidate{service: v.Service, drained: v.Drained}
		n := slices.IndexFunc(w.vips, func(c candidate) bool { return c.service == v.Service })
		switch {
		case n >= 0:
			c.since = w.vips[n].since
		case v.Check != nil && !s.serves(&v, old):
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

// prefixes returns the addresses that may be announced now, sorted.
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

// settled returns whether all backends are up, or down by a check that began after the VIP got a backend for new flows. A
// check from before may have failed for the same reason as those of all backends.
func (c *candidate) settled(result func(lbplane.BackendID) health.Result) bool {
	return !slices.ContainsFunc(c.checked, func(backend lbplane.BackendID) bool {
		r := result(backend)
		return r.State == health.Unknown || r.Rising || r.State == health.Down && r.Asked.Before(c.since)
	})
}

// settle updates the addresses that are to be announced.
func (r *runner) settle() {
	result := r.health.result
	if r.unchecked { // logged already; no results will come, so all backends count as up
		result = func(lbplane.BackendID) health.Result { return health.Result{State: health.Up} }
	}
	all := r.settling.prefixes(result)
	if r.Withheld != nil && r.Withheld() {
		all = nil
	}
	if !slices.Equal(all, r.announced) {
		r.announced, r.upToDate = all, false
	}
}

// mayAnnounce tells whether routers may send flows here. A machine that has just started, or whose data plane was attached again, first
// gets the flows of its peers. Withdrawals do not wait for that.
func (r *runner) mayAnnounce() bool {
	if r.Peers == nil || r.Peers.Ready() {
		return true
	}
	return r.spoken && !slices.ContainsFunc(r.announced, func(p netip.Prefix) bool { return !slices.Contains(r.said, p) })
}

// announce announces the addresses to the routers. run tries again after an error.
func (r *runner) announce(ctx context.Context) {
	if r.Announcer == nil {
		r.upToDate = true
		return
	}
	err := r.Announcer.Set(ctx, r.announced)
	r.failing(ctx, "announcing VIPs", err)
	if err != nil {
		return
	}
	r.upToDate, r.spoken, r.said = true, true, r.announced
	r.Log.Info("addresses to announce", "vips", fmt.Sprint(r.announced))
}
