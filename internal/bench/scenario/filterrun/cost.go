// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
	"culvert/internal/host/netdev"
)

// costDevice is culvert's filter with rules of one kind, whose cost is to be measured by itself.
type costDevice struct {
	rules ruleSet
	// sources is how many addresses of the set the packets come from.
	sources int
	// pass has packets that no rule drops.
	pass    bool
	culvert culvert
	answer  uint32 // how answers leave
}

// limitRate is a rate that no packet is over.
const limitRate = "1Gpps"

// Costs are the kinds whose cost is measured. A set has 1,000,000 prefixes at most; in guests, which are slow, fewer.
func Costs(most int) []peer.Candidate {
	var all []peer.Candidate
	add := func(name string, pass bool, rules ruleSet, sources, set int) {
		all = append(all, peer.Candidate{Name: "filter-" + name, Device: func(peer.DeviceOptions) peer.Device {
			rules.Set = randomPrefixes(set)
			return &costDevice{rules: rules, pass: pass, sources: sources}
		}})
	}
	add("none", true, ruleSet{Off: true}, 0, 0)
	for _, n := range []int{1, 10, 100} {
		add(fmt.Sprintf("pass-%d", n), true, ruleSet{Idle: n - 1}, 0, 0)
	}
	add("drop", false, ruleSet{}, 0, 0)
	add("limit", true, ruleSet{Limit: true}, 0, 0)
	add("limit-src", true, ruleSet{Limit: true, PerSource: true}, 0, 0)
	add("protect", false, ruleSet{Protect: true}, 0, 0)
	add("protect-pass", true, ruleSet{Protect: true}, 0, 0)
	for _, n := range []int{10, most} {
		add(fmt.Sprintf("set-%d-warm", n), false, ruleSet{}, warmSources, n)
		add(fmt.Sprintf("set-%d-cold", n), false, ruleSet{}, coldSources, n)
	}
	return all
}

// Attach puts the filter on In.
func (d *costDevice) Attach(ctx context.Context, p peer.Path) error {
	d.answer = load.XDPRedirect
	err := p.In.Netns.Do(func() error {
		xdp, err := netdev.Open(netdev.XDPFamily)
		if err != nil {
			return nil // an older kernel, which does not tell
		}
		defer xdp.Close()
		if acts, ok := xdp.XDPActs(p.In.Index); ok && acts&netdev.ActXmit == 0 {
			d.answer = load.XDPTX
		}
		return nil
	})
	if err != nil {
		return err
	}
	return d.culvert.Install(ctx, p.In, d.rules)
}

// Frames are those that the rules are about.
func (d *costDevice) Frames(p peer.Path, common [][]byte) ([][]byte, error) {
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
func (*costDevice) Losses() (map[string]uint64, error) { return nil, nil }

// Program is what is on In.
func (d *costDevice) Program() (*ebpf.Program, uint32) {
	switch {
	case d.pass:
		return d.culvert.inst.Entry(), load.XDPPass
	case d.rules.Protect:
		return d.culvert.inst.Entry(), d.answer
	}
	return d.culvert.inst.Entry(), load.XDPDrop
}

func (d *costDevice) Detach() error { return d.culvert.Remove() }

// mostPrefixes is how many prefixes the largest set has.
const mostPrefixes = 1_000_000

// runCosts measures what culvert's filter takes for a packet by itself, net of an empty program.
func runCosts(ctx context.Context, o scenario.Options) (_ *report.Report, err error) {
	var rows []*scenario.VethRow
	defer func() {
		for _, row := range rows {
			err = errors.Join(err, row.Teardown())
		}
	}()
	cpu := load.LastCPU()
	var subjects []load.Subject
	most := mostPrefixes
	if o.Sample > 0 {
		most = o.Sample
	}
	for _, c := range Costs(most) {
		fmt.Fprintf(o.Progress, "setting up %s\n", c.Name)
		row := &scenario.VethRow{Label: c.Name + "@" + scenario.CostGroup, Device: c.Device(o.DeviceOptions()), Opts: scenario.VethOptions{CPU: cpu}}
		rows = append(rows, row)
		s, err := row.Subject(ctx)
		if err != nil {
			return nil, fmt.Errorf("set %s up: %w", row.Label, err)
		}
		subjects = append(subjects, s)
	}
	const checked = 64
	costs, err := load.Cost(ctx, load.CostOptions{Rounds: 3 * o.Rounds, Checked: checked, CPU: cpu, Progress: func(round, rounds int) {
		fmt.Fprintf(o.Progress, "round %d of %d\n", round, rounds)
	}}, subjects...)
	if err != nil {
		return nil, err
	}
	r := scenario.CostReport(costs)
	for i := range r.Rows {
		r.Rows[i].FrameSize = frameLen
	}
	return r, nil
}
