// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"context"
	"maps"
	"net/netip"
	"sync"

	"culvert/internal/datapath"
	"culvert/internal/lb/health"
)

// checks has the backends of VIPs with a check checked.
type checks struct {
	inst    *datapath.Instance
	wake    func() // a state has changed
	checker *health.Checker
	packets *datapath.Checks // nil while nothing is checked

	mu      sync.Mutex
	results map[datapath.BalanceOwner]health.Result
	fresh   map[datapath.BalanceOwner]bool // not kept yet
}

func newChecks(ctx context.Context, o Options, wake func()) *checks {
	c := &checks{
		inst: o.Instance, wake: wake,
		results: make(map[datapath.BalanceOwner]health.Result), fresh: make(map[datapath.BalanceOwner]bool),
	}
	c.checker = health.New(ctx, health.Options{
		Report: c.report,
		Ready:  func(t health.Target) error { return c.packets.Ready(t.Addr.Addr(), t.Mark) },
	})
	return c
}

// close waits for the checks, whose context has ended.
func (c *checks) close() {
	c.checker.Wait()
	if c.packets != nil {
		_ = c.packets.Close() // the process ends
	}
}

func (c *checks) report(id uint32, r health.Result, changed bool) {
	owner := datapath.BalanceOwner(id)
	c.mu.Lock()
	_, wanted := c.results[owner]
	if wanted {
		c.results[owner] = r
		c.fresh[owner] = true
	}
	c.mu.Unlock()
	if wanted && changed {
		c.wake()
	}
}

// set says who is to be checked. What an earlier process has found goes on.
func (c *checks) set(p *datapath.BalancePlane, s *State) error {
	var targets []health.Target
	results := make(map[datapath.BalanceOwner]health.Result)
	c.mu.Lock()
	known := maps.Clone(c.results)
	c.mu.Unlock()
	for _, v := range s.VIPs {
		if v.Check == nil {
			continue
		}
		for _, b := range v.Backends {
			r, ok := known[b.Owner]
			if !ok {
				kept, err := p.Health(b.Owner.Number())
				if err != nil {
					return err
				}
				if kept.Owner == b.Owner {
					r = resultOf(kept)
				}
			}
			results[b.Owner] = r
			targets = append(targets, health.Target{
				ID: uint32(b.Owner), Addr: netip.AddrPortFrom(v.Service.Addr, v.Service.Port), Mark: datapath.CheckMark(b.Owner), Check: *v.Check,
				Known: r,
			})
		}
	}
	if len(targets) > 0 && c.packets == nil {
		packets, err := c.inst.AttachChecks()
		if err != nil {
			return err
		}
		c.packets = packets
	}
	c.mu.Lock()
	for owner := range results { // reports may have come meanwhile
		if r, ok := c.results[owner]; ok {
			results[owner] = r
		}
	}
	c.results = results
	c.mu.Unlock()
	c.checker.Set(targets)
	return nil
}

func resultOf(h datapath.BalanceHealth) health.Result {
	states := map[datapath.BalanceState]health.State{datapath.BalanceUp: health.Up, datapath.BalanceDown: health.Down}
	return health.Result{State: states[h.State], Since: h.Since, Checks: h.Checks, Failures: h.Failures, Text: h.Text}
}

func healthOf(owner datapath.BalanceOwner, r health.Result) datapath.BalanceHealth {
	states := map[health.State]datapath.BalanceState{health.Up: datapath.BalanceUp, health.Down: datapath.BalanceDown}
	return datapath.BalanceHealth{Owner: owner, State: states[r.State], Since: r.Since, Checks: r.Checks, Failures: r.Failures, Text: r.Text}
}

// down is who fails: of those that are not checked, as it was.
func (c *checks) down(was map[datapath.BalanceOwner]bool) map[datapath.BalanceOwner]bool {
	now := maps.Clone(was)
	c.mu.Lock()
	defer c.mu.Unlock()
	for owner, r := range c.results {
		now[owner] = r.State == health.Down
	}
	return now
}

// result is what is known of a backend.
func (c *checks) result(owner datapath.BalanceOwner) health.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.results[owner]
}

// keep writes what has been found for others to read. What cannot be written is lost: the next finding comes soon.
func (c *checks) keep(p *datapath.BalancePlane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for owner := range c.fresh {
		if r, ok := c.results[owner]; ok {
			_ = p.SetHealth(healthOf(owner, r))
		}
	}
	clear(c.fresh)
}
