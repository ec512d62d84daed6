// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"context"
	"maps"
	"net/netip"
	"sync"

	"culvert/internal/datapath"
	"culvert/internal/lb/health"
	"culvert/internal/lb/lbplane"
)

// checks runs the health checks of backends.
type checks struct {
	inst    *datapath.Instance
	wake    func() // called when the state of a backend has changed
	checker *health.Checker
	probes  *lbplane.Probes // nil while no VIP has a check

	mu      sync.Mutex
	results map[lbplane.BackendID]health.Result
	fresh   map[lbplane.BackendID]bool // results that are not in the data plane yet
}

func newChecks(ctx context.Context, o Options, wake func()) *checks {
	c := &checks{
		inst: o.Instance, wake: wake,
		results: make(map[lbplane.BackendID]health.Result), fresh: make(map[lbplane.BackendID]bool),
	}
	c.checker = health.New(ctx, health.Options{
		Report: c.report,
		Ready:  func(t health.Target) error { return c.probes.Ready(t.Addr.Addr(), t.Mark) },
	})
	return c
}

// close waits for the end of the checks, whose context has ended.
func (c *checks) close() {
	c.checker.Wait()
	if c.probes != nil {
		_ = c.probes.Close() // the end of the process detaches them too
	}
}

func (c *checks) report(id uint32, r health.Result, changed bool) {
	backend := lbplane.BackendID(id)
	c.mu.Lock()
	_, wanted := c.results[backend]
	if wanted {
		c.results[backend] = r
		c.fresh[backend] = true
	}
	c.mu.Unlock()
	if wanted && changed {
		c.wake()
	}
}

// set starts the checks of the state's backends and ends all others. A backend starts with its last result, which may come
// from an earlier process.
func (c *checks) set(p *lbplane.Plane, s *State) error {
	var targets []health.Target
	results := make(map[lbplane.BackendID]health.Result)
	c.mu.Lock()
	known := maps.Clone(c.results)
	c.mu.Unlock()
	for _, v := range s.VIPs {
		if v.Check == nil {
			continue
		}
		for _, b := range v.Backends {
			r, ok := known[b.ID]
			if !ok {
				kept, err := p.Health(b.ID.Number())
				if err != nil {
					return err
				}
				if kept.Backend == b.ID {
					r = resultOf(kept)
				}
			}
			results[b.ID] = r
			targets = append(targets, health.Target{
				ID: uint32(b.ID), Addr: netip.AddrPortFrom(v.Service.Addr, v.Service.Port), Mark: lbplane.ProbeMark(b.ID), Check: *v.Check,
				Known: r,
			})
		}
	}
	if len(targets) > 0 && c.probes == nil {
		probes, err := lbplane.AttachProbes(c.inst)
		if err != nil {
			return err
		}
		c.probes = probes
	}
	c.mu.Lock()
	for backend := range results { // reports may have come meanwhile
		if r, ok := c.results[backend]; ok {
			results[backend] = r
		}
	}
	c.results = results
	c.mu.Unlock()
	c.checker.Set(targets)
	return nil
}

func resultOf(h lbplane.Health) health.Result {
	states := map[lbplane.HealthState]health.State{lbplane.Up: health.Up, lbplane.Down: health.Down}
	return health.Result{State: states[h.State], Since: h.Since, Checks: h.Checks, Failures: h.Failures, Text: h.Text}
}

func healthOf(backend lbplane.BackendID, r health.Result) lbplane.Health {
	states := map[health.State]lbplane.HealthState{health.Up: lbplane.Up, health.Down: lbplane.Down}
	return lbplane.Health{Backend: backend, State: states[r.State], Since: r.Since, Checks: r.Checks, Failures: r.Failures, Text: r.Text}
}

// down returns was with the results of the checks. Backends without a check stay as they were.
func (c *checks) down(was map[lbplane.BackendID]bool) map[lbplane.BackendID]bool {
	now := maps.Clone(was)
	c.mu.Lock()
	defer c.mu.Unlock()
	for backend, r := range c.results {
		now[backend] = r.State == health.Down
	}
	return now
}

// result returns the last result of a backend, a zero one if there is none.
func (c *checks) result(backend lbplane.BackendID) health.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.results[backend]
}

// keep writes new results into the data plane, for other processes to read. Errors are ignored: the next results come soon.
func (c *checks) keep(p *lbplane.Plane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for backend := range c.fresh {
		if r, ok := c.results[backend]; ok {
			_ = p.SetHealth(healthOf(backend, r))
		}
	}
	clear(c.fresh)
}
