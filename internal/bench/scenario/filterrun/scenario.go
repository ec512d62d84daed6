// SPDX-License-Identifier: Apache-2.0

// Package filterrun measures packet filters: how fast they drop floods, and how well innocent clients fare meanwhile.
package filterrun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
)

// stateful is the first rule of a typical firewall with connection tracking.
const stateful = "-m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"

// filters has the constructors of all packet filters under test, by the name of their row.
func filters() map[string]func() packetFilter {
	raw := iptables{program: "iptables", table: "raw", chain: "PREROUTING"}
	legacy, input, conntrack, bytecode, sets := raw, raw, raw, raw, raw
	legacy.program = "iptables-legacy"
	input.table, input.chain = "filter", "INPUT"
	conntrack.table, conntrack.chain, conntrack.before = "filter", "INPUT", []string{stateful}
	bytecode.match = icmpBytecode
	sets.byIPSet = true
	copyOf := func(p iptables) func() packetFilter {
		return func() packetFilter {
			filter := p
			return &filter
		}
	}
	return map[string]func() packetFilter{
		"none":               func() packetFilter { return noFilter{} },
		"xdp-drop":           func() packetFilter { return &xdpProgram{program: load.BenchProgBenchDrop} },
		"xdp-icmp":           func() packetFilter { return &xdpProgram{program: load.BenchProgBenchDropIcmp} },
		"culvert":            func() packetFilter { return &culvert{} },
		"xdp-filter":         func() packetFilter { return &xdpFilter{} },
		"nft-netdev":         func() packetFilter { return &nftables{} },
		"iptables-raw":       copyOf(raw),
		"iptables-legacy":    copyOf(legacy),
		"iptables-bpf":       copyOf(bytecode),
		"ipset":              copyOf(sets),
		"iptables-input":     copyOf(input),
		"iptables-conntrack": copyOf(conntrack),
	}
}

// candidates are the rows of scenario filter, in the order of reports.
func candidates() []peer.Candidate {
	var all []peer.Candidate
	for _, name := range []string{
		"none", "xdp-drop", "xdp-icmp", "culvert", "xdp-filter", "nft-netdev", "iptables-raw", "iptables-legacy", "iptables-bpf", "ipset",
		"iptables-input", "iptables-conntrack",
	} {
		all = append(all, peer.Candidate{Name: name})
	}
	return all
}

// Scenario is the scenario that measures packet filters.
func Scenario() scenario.Scenario {
	return scenario.Scenario{Name: "filter", Rounds: 5, Round: 250 * time.Millisecond, Candidates: candidates(), Run: run}
}

// run measures packet filters: the rate at which they drop and the CPU time that this takes, in floods and at lower rates, with
// many rules and with large sets. It also measures the transactions of an innocent client during floods.
func run(ctx context.Context, chosen []peer.Candidate, o scenario.Options) (r *report.Report, err error) {
	batches, err := chosenGroups(o)
	if err != nil {
		return nil, err
	}
	missing, err := findMissing(ctx, o, chosen)
	if err != nil {
		return nil, err
	}
	available := slices.DeleteFunc(slices.Clone(chosen), func(c peer.Candidate) bool { return missing[c.Name] != nil })
	soft, err := load.WatchSoftirqs()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, soft.Close()) }()
	r = &report.Report{
		Ratios: map[string]float64{}, RatioSpreads: map[string]report.Spread{}, SoftRatios: map[string]report.Spread{},
	}
	for _, c := range chosen {
		if err := missing[c.Name]; err != nil {
			r.Rows = append(r.Rows, report.Row{Name: c.Name, FrameSize: frameLen, Note: "not measured: " + err.Error()})
		}
	}
	// baseRate is the rate at which loadBase drops a flood, in packets a second, 0 as long as it is not known.
	baseRate := 0.0
	for _, batch := range batches {
		part := &report.Report{}
		switch {
		case batch[0].cost && !slices.ContainsFunc(available, func(c peer.Candidate) bool { return c.Name == "culvert" }):
			continue
		case batch[0].cost:
			part, err = runCosts(ctx, o)
		case batch[0].tcp:
			part, err = runFloods(ctx, available, batch[0], o)
		default:
			if batch[0].share > 0 && baseRate == 0 {
				if baseRate, err = measureBaseRate(ctx, soft, o); err != nil {
					return nil, err
				}
			}
			for _, g := range batch {
				g.pace = g.share * baseRate
			}
			fewer := o
			if batch[0].name != floodGroup {
				fewer.Rounds = (o.Rounds + 1) / 2
			}
			part, err = runRows(ctx, available, batch, soft, fewer)
		}
		if err != nil {
			return nil, err
		}
		for _, row := range part.Rows {
			if row.Name == loadBase+"@"+floodGroup && row.Mpps != nil {
				baseRate = 1e6 * row.Mpps.Median
			}
		}
		r.Rows = append(r.Rows, part.Rows...)
		maps.Copy(r.Ratios, part.Ratios)
		maps.Copy(r.RatioSpreads, part.RatioSpreads)
		maps.Copy(r.SoftRatios, part.SoftRatios)
	}
	if len(r.Rows) == 0 {
		return nil, fmt.Errorf("%w --groups and --rows: none of the groups has any of the rows", scenario.ErrOption)
	}
	return r, nil
}

// findMissing tries all filters, and finds those that do not work on this machine. The errors, by row, say what is missing. If
// a row in o.Rows is among them, findMissing returns an error instead.
func findMissing(ctx context.Context, o scenario.Options, chosen []peer.Candidate) (map[string]error, error) {
	missing := map[string]error{}
	for _, c := range chosen {
		fmt.Fprintf(o.Progress, "trying %s\n", c.Name)
		err := tryPeer(ctx, filters()[c.Name]())
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return nil, fmt.Errorf("interrupted: %w", ctx.Err())
		case slices.Contains(o.Rows, c.Name):
			return nil, fmt.Errorf("set %s up: %w", c.Name, err)
		}
		missing[c.Name] = err
		scenario.KeepLine(o.Progress, fmt.Sprintf("leaving %s out: %v", c.Name, err))
	}
	return missing, nil
}

// loadBase is the row whose rate in floodGroup is the base of group.share.
const (
	loadBase   = "iptables-raw"
	floodGroup = "drop"
)

// measureBaseRate measures the rate at which loadBase drops a flood, in packets a second, if floodGroup was not selected.
func measureBaseRate(ctx context.Context, soft *load.Softirqs, o scenario.Options) (float64, error) {
	o.Rounds = 3
	r, err := runRows(ctx, []peer.Candidate{{Name: loadBase}}, []*group{{name: floodGroup}}, soft, o)
	if err != nil {
		return 0, fmt.Errorf("measure %s, whose rate is the base of other rates: %w", loadBase, err)
	}
	return 1e6 * r.Rows[0].Mpps.Median, nil
}

// runRows measures the rows of groups in turns. A filter that does not support a group's rules is reported as not measured.
func runRows(ctx context.Context, available []peer.Candidate, groups []*group, soft *load.Softirqs, o scenario.Options) (_ *report.Report, err error) {
	var rows []scenario.Row
	var absent []report.Row
	var inUse []*bed
	defer func() {
		for _, b := range inUse {
			err = errors.Join(err, b.release())
		}
	}()
	cpu := load.LastCPU()
	for _, c := range available {
		// Groups with the same rules share a bed.
		beds, failed := map[[2]int]*bed{}, map[[2]int]error{}
		for _, g := range groups {
			if !g.has(c) {
				continue
			}
			key := [2]int{g.idle, g.set}
			if beds[key] == nil {
				b := newBed(filters()[c.Name](), g.rulesOf(c))
				beds[key], inUse = b, append(inUse, b)
				fmt.Fprintf(o.Progress, "building the bed of %s@%s\n", c.Name, g.name)
				failed[key] = b.use(ctx)
				if ctx.Err() != nil {
					return nil, fmt.Errorf("interrupted: %w", ctx.Err())
				}
			}
			if err := failed[key]; err != nil {
				note := "not measured: " + err.Error()
				absent = append(absent, report.Row{Name: c.Name + "@" + g.name, FrameSize: frameLen, Note: note})
				scenario.KeepLine(o.Progress, fmt.Sprintf("leaving %s@%s out: %v", c.Name, g.name, err))
				continue
			}
			rows = append(rows, &Row{name: c.Name + "@" + g.name, group: g, bed: beds[key], soft: soft, cpu: cpu, from: cpu})
		}
	}
	samples, err := scenario.RunRows(ctx, rows, scenario.RunOptions{Rounds: o.Rounds, Round: o.Round, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	r := makeReport(groups, rows, samples)
	r.Rows = append(r.Rows, absent...)
	return r, nil
}
