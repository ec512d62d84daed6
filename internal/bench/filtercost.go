// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bench/report"
	"culvert/internal/host/netdev"
)

// filterCost is culvert's filter with rules of one kind, whose cost is to be measured by itself.
type filterCost struct {
	rules filterRules
	// sources is how many addresses of the set the packets come from.
	sources int
	// pass has packets that no rule drops.
	pass    bool
	culvert filterCulvert
	answer  uint32 // how answers leave
}

// limitRate is a rate that no packet is over.
const limitRate = "1Gpps"

// filterCosts are the kinds whose cost is measured. A set has 1,000,000 prefixes at most; in guests, which are slow, fewer.
func filterCosts(most int) []candidate {
	var all []candidate
	add := func(name string, pass bool, rules filterRules, sources, set int) {
		all = append(all, candidate{name: "filter-" + name, device: func(Terms) Device {
			rules.Set = randomPrefixes(set)
			return &filterCost{rules: rules, pass: pass, sources: sources}
		}})
	}
	add("none", true, filterRules{Off: true}, 0, 0)
	for _, n := range []int{1, 10, 100} {
		add(fmt.Sprintf("pass-%d", n), true, filterRules{Idle: n - 1}, 0, 0)
	}
	add("drop", false, filterRules{}, 0, 0)
	add("limit", true, filterRules{Limit: true}, 0, 0)
	add("limit-src", true, filterRules{Limit: true, PerSource: true}, 0, 0)
	add("protect", false, filterRules{Protect: true}, 0, 0)
	add("protect-pass", true, filterRules{Protect: true}, 0, 0)
	for _, n := range []int{10, most} {
		add(fmt.Sprintf("set-%d-warm", n), false, filterRules{}, warmSources, n)
		add(fmt.Sprintf("set-%d-cold", n), false, filterRules{}, coldSources, n)
	}
	return all
}

// Attach puts the filter on In.
func (d *filterCost) Attach(ctx context.Context, p Path) error {
	d.answer = xdpRedirect
	err := p.In.Space.Do(func() error {
		xdp, err := netdev.Open(netdev.XDPFamily)
		if err != nil {
			return nil // an older kernel, which does not tell
		}
		defer xdp.Close()
		if acts, ok := xdp.XDPActs(p.In.Index); ok && acts&netdev.ActXmit == 0 {
			d.answer = xdpTX
		}
		return nil
	})
	if err != nil {
		return err
	}
	return d.culvert.Install(ctx, p.In, d.rules)
}

// Frames are those that the rules are about.
func (d *filterCost) Frames(p Path, common [][]byte) ([][]byte, error) {
	switch {
	case len(d.rules.Set) > 0:
		return floodOf(p, d.rules.Set, d.sources), nil
	case d.rules.Protect && !d.pass:
		return floodSYN(p), nil
	case d.pass && !d.rules.Limit:
		return innocentUDP(p)
	default:
		return floodICMP(p), nil
	}
}

// Losses are not asked for: nothing is sent.
func (*filterCost) Losses() (map[string]uint64, error) { return nil, nil }

// Program is what is on In.
func (d *filterCost) Program() (*ebpf.Program, uint32) {
	switch {
	case d.pass:
		return d.culvert.inst.Entry(), xdpPass
	case d.rules.Protect:
		return d.culvert.inst.Entry(), d.answer
	}
	return d.culvert.inst.Entry(), xdpDrop
}

func (d *filterCost) Detach() error { return d.culvert.Remove() }

// mostPrefixes is how many prefixes the largest set has.
const mostPrefixes = 1_000_000

// runFilterCosts measures what culvert's filter takes for a packet by itself, net of an empty program.
func runFilterCosts(ctx context.Context, o Options) (_ *report.Report, err error) {
	var rows []*vethRow
	defer func() {
		for _, row := range rows {
			err = errors.Join(err, row.Teardown())
		}
	}()
	cpu := LastCPU()
	var subjects []Subject
	most := mostPrefixes
	if o.Sample > 0 {
		most = o.Sample
	}
	for _, c := range filterCosts(most) {
		fmt.Fprintf(o.Progress, "setting up %s\n", c.name)
		row := &vethRow{name: c.name + "@" + costGroup, device: c.device(o.Terms()), opts: vethOptions{CPU: cpu}}
		rows = append(rows, row)
		s, err := row.subject(ctx)
		if err != nil {
			return nil, fmt.Errorf("set %s up: %w", row.name, err)
		}
		subjects = append(subjects, s)
	}
	const checked = 64
	costs, err := Cost(ctx, CostOptions{Rounds: 3 * o.Rounds, Checked: checked, CPU: cpu, Progress: func(round, rounds int) {
		fmt.Fprintf(o.Progress, "round %d of %d\n", round, rounds)
	}}, subjects...)
	if err != nil {
		return nil, err
	}
	r := costReport(costs)
	for i := range r.Rows {
		r.Rows[i].FrameSize = filterFrame
	}
	return r, nil
}
