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
	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
)

// costDevice is culvert's filter with rules of one kind, for measuring its cost by itself.
type costDevice struct {
	rules ruleSet
	// sources is the number of addresses in the set that the packets come from.
	sources int
	// pass selects packets that the filter passes.
	pass    bool
	culvert culvert
	// answerVerdict is the verdict of SYNs that the filter answers.
	answerVerdict uint32
}

// limitRate is a rate that packets never exceed.
const limitRate = "1Gpps"

// Costs returns the rows of culvert's filter by itself. The largest set has largestSet prefixes.
func Costs(largestSet int) []peer.Candidate {
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
	all = append(all, peer.Candidate{Name: "filter-general", Device: func(peer.DeviceOptions) peer.Device {
		return &costDevice{culvert: culvert{general: true}}
	}})
	for _, n := range []int{1, 1000} {
		add(fmt.Sprintf("shape-%d", n), false, ruleSet{Idle: n, Shape: true}, 0, 0)
	}
	add("limit", true, ruleSet{Limit: true}, 0, 0)
	add("limit-src", true, ruleSet{Limit: true, PerSource: true}, 0, 0)
	add("protect", false, ruleSet{Protect: true}, 0, 0)
	add("protect-pass", true, ruleSet{Protect: true}, 0, 0)
	for _, n := range []int{10, largestSet} {
		add(fmt.Sprintf("set-%d-warm", n), false, ruleSet{}, warmSources, n)
		add(fmt.Sprintf("set-%d-cold", n), false, ruleSet{}, coldSources, n)
	}
	return all
}

// PassOne is the row of packets that a rule does not match, for what is measured on top of it.
func PassOne() peer.Candidate {
	return peer.Candidate{Name: "filter-pass-1", Device: func(peer.DeviceOptions) peer.Device {
		return &costDevice{pass: true}
	}}
}

// DropOne is the row of packets that one rule drops, for what is measured on top of it.
func DropOne() peer.Candidate {
	return peer.Candidate{Name: "filter-drop", Device: func(peer.DeviceOptions) peer.Device {
		return &costDevice{}
	}}
}

// Protect is the row of SYNs that are answered with SYN cookies, for what is measured on top of it.
func Protect() peer.Candidate {
	return peer.Candidate{Name: "filter-protect", Device: func(peer.DeviceOptions) peer.Device {
		return &costDevice{rules: ruleSet{Protect: true}}
	}}
}

// Join adds a part to the data plane, before Attach.
func (d *costDevice) Join(part datapath.Part) { d.culvert.joined = append(d.culvert.joined, part) }

// Instance returns the data plane.
func (d *costDevice) Instance() *datapath.Instance { return d.culvert.inst }

// Attach puts the filter on In.
func (d *costDevice) Attach(ctx context.Context, p peer.Path) error {
	d.answerVerdict = load.XDPRedirect
	err := p.In.Netns.Do(func() error {
		xdp, err := netdev.Open(netdev.XDPFamily)
		if err != nil {
			return nil // an older kernel, which does not say what XDP can do on a device
		}
		defer xdp.Close()
		if acts, ok := xdp.XDPActs(p.In.Index); ok && acts&netdev.ActXmit == 0 {
			d.answerVerdict = load.XDPTX
		}
		return nil
	})
	if err != nil {
		return err
	}
	return d.culvert.Install(ctx, p.In, d.rules)
}

// Frames returns packets that the rules match or, with pass, packets that they pass.
func (d *costDevice) Frames(p peer.Path, common [][]byte) ([][]byte, error) {
	switch {
	case len(d.rules.Set) > 0:
		return floodOf(p, d.rules.Set, d.sources), nil
	case d.rules.Protect && !d.pass:
		return floodSYN(p), nil
	case d.rules.Shape:
		return idleUDP(p, d.rules.Idle-1)
	case d.pass && !d.rules.Limit:
		return innocentUDP(p)
	default:
		return floodICMP(p), nil
	}
}

// Losses implements peer.Device. No packets are sent through the device.
func (*costDevice) Losses() (map[string]uint64, error) { return nil, nil }

// Program implements peer.SingleProgram.
func (d *costDevice) Program() (*ebpf.Program, uint32) {
	switch {
	case d.pass:
		return d.culvert.inst.Entry(), load.XDPPass
	case d.rules.Protect:
		return d.culvert.inst.Entry(), d.answerVerdict
	}
	return d.culvert.inst.Entry(), load.XDPDrop
}

func (d *costDevice) Detach() error { return d.culvert.Remove() }

// maxPrefixes is the number of prefixes in the largest set.
const maxPrefixes = 1_000_000

// runCosts measures the cost of culvert's filter by itself, net of an empty program.
func runCosts(ctx context.Context, o scenario.Options) (_ *report.Report, err error) {
	var rows []*scenario.VethRow
	defer func() {
		for _, row := range rows {
			err = errors.Join(err, row.Teardown())
		}
	}()
	cpu := load.LastCPU()
	var subjects []load.Subject
	largestSet := maxPrefixes
	if o.Sample > 0 {
		largestSet = o.Sample
	}
	for _, c := range Costs(largestSet) {
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
