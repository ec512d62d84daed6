// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"culvert/internal/bench/report"
)

// stateful is what a firewall that follows connections has in front of all other rules.
const stateful = "-m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"

// filters make the packet filters under test, by the names of their rows.
func filters() map[string]func() filterPeer {
	raw := iptables{program: "iptables", table: "raw", chain: "PREROUTING"}
	legacy, input, conntrack, bytecode, sets := raw, raw, raw, raw, raw
	legacy.program = "iptables-legacy"
	input.table, input.chain = "filter", "INPUT"
	conntrack.table, conntrack.chain, conntrack.before = "filter", "INPUT", []string{stateful}
	bytecode.match = icmpBytecode
	sets.byIPSet = true
	of := func(p iptables) func() filterPeer {
		return func() filterPeer {
			one := p
			return &one
		}
	}
	return map[string]func() filterPeer{
		"none":               func() filterPeer { return noFilter{} },
		"xdp-drop":           func() filterPeer { return &xdpProgram{program: benchProgBenchDrop} },
		"xdp-icmp":           func() filterPeer { return &xdpProgram{program: benchProgBenchDropIcmp} },
		"culvert":            func() filterPeer { return &filterCulvert{} },
		"xdp-filter":         func() filterPeer { return &xdpFilter{} },
		"nft-netdev":         func() filterPeer { return &nftables{} },
		"iptables-raw":       of(raw),
		"iptables-legacy":    of(legacy),
		"iptables-bpf":       of(bytecode),
		"ipset":              of(sets),
		"iptables-input":     of(input),
		"iptables-conntrack": of(conntrack),
	}
}

// filterCandidates are the rows of scenario filter, in the order of reports.
func filterCandidates() []candidate {
	var all []candidate
	for _, name := range []string{
		"none", "xdp-drop", "xdp-icmp", "culvert", "xdp-filter", "nft-netdev", "iptables-raw", "iptables-legacy", "iptables-bpf", "ipset",
		"iptables-input", "iptables-conntrack",
	} {
		all = append(all, candidate{name: name})
	}
	return all
}

// FilterScenario is about packet filters.
func FilterScenario() Scenario {
	return Scenario{Name: "filter", Rounds: 5, Round: 250 * time.Millisecond, Candidates: filterCandidates(), Run: runFilter}
}

// runFilter measures packet filters: what they drop a second and what that takes of the CPU, flooded and at lower rates;
// with many rules and with large sets; and what is left of an innocent client's transactions.
func runFilter(ctx context.Context, chosen []candidate, o Options) (r *report.Report, err error) {
	batches, err := chosenFilterGroups(o)
	if err != nil {
		return nil, err
	}
	missing, err := missingFilters(ctx, o, chosen)
	if err != nil {
		return nil, err
	}
	there := slices.DeleteFunc(slices.Clone(chosen), func(c candidate) bool { return missing[c.name] != nil })
	soft, err := watchSoftirqs()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, soft.Close()) }()
	r = &report.Report{
		Ratios: map[string]float64{}, RatioSpreads: map[string]report.Spread{}, SoftRatios: map[string]report.Spread{},
	}
	for _, c := range chosen {
		if err := missing[c.name]; err != nil {
			r.Rows = append(r.Rows, report.Row{Name: c.name, FrameSize: filterFrame, Note: "not measured: " + err.Error()})
		}
	}
	// taken is what iptables-raw took of a flood, in packets a second.
	taken := 0.0
	for _, batch := range batches {
		part := &report.Report{}
		switch {
		case batch[0].cost && !slices.ContainsFunc(there, func(c candidate) bool { return c.name == "culvert" }):
			continue
		case batch[0].cost:
			part, err = runFilterCosts(ctx, o)
		case batch[0].tcp:
			part, err = runFloods(ctx, there, batch[0], o)
		default:
			if batch[0].share > 0 && taken == 0 {
				if taken, err = measureTaken(ctx, soft, o); err != nil {
					return nil, err
				}
			}
			for _, g := range batch {
				g.pace = g.share * taken
			}
			fewer := o
			if batch[0].name != floodGroup {
				fewer.Rounds = (o.Rounds + 1) / 2
			}
			part, err = runFilters(ctx, there, batch, soft, fewer)
		}
		if err != nil {
			return nil, err
		}
		for _, row := range part.Rows {
			if row.Name == loadBase+"@"+floodGroup && row.Mpps != nil {
				taken = 1e6 * row.Mpps.Median
			}
		}
		r.Rows = append(r.Rows, part.Rows...)
		maps.Copy(r.Ratios, part.Ratios)
		maps.Copy(r.RatioSpreads, part.RatioSpreads)
		maps.Copy(r.SoftRatios, part.SoftRatios)
	}
	if len(r.Rows) == 0 {
		return nil, fmt.Errorf("%w --groups and --rows: none of the groups has any of the rows", ErrOption)
	}
	return r, nil
}

// missingFilters tries all filters, and finds those that the machine lacks, with what is missing. It is an error if they
// were asked for by name.
func missingFilters(ctx context.Context, o Options, chosen []candidate) (map[string]error, error) {
	missing := map[string]error{}
	for _, c := range chosen {
		fmt.Fprintf(o.Progress, "trying %s\n", c.name)
		err := tryPeer(ctx, filters()[c.name]())
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return nil, fmt.Errorf("interrupted: %w", ctx.Err())
		case slices.Contains(o.Rows, c.name):
			return nil, fmt.Errorf("set %s up: %w", c.name, err)
		}
		missing[c.name] = err
		keep(o.Progress, fmt.Sprintf("leaving %s out: %v", c.name, err))
	}
	return missing, nil
}

// loadBase is the row whose rate in floodGroup the rates of groups with a share are multiples of.
const (
	loadBase   = "iptables-raw"
	floodGroup = "drop"
)

// measureTaken floods loadBase, which has not been measured yet.
func measureTaken(ctx context.Context, soft *softirqs, o Options) (float64, error) {
	o.Rounds = 3
	r, err := runFilters(ctx, []candidate{{name: loadBase}}, []*filterGroup{{name: floodGroup}}, soft, o)
	if err != nil {
		return 0, fmt.Errorf("find what %s takes, which the rates are shares of: %w", loadBase, err)
	}
	return 1e6 * r.Rows[0].Mpps.Median, nil
}

// runFilters measures the rows of groups in turn. A filter that cannot have a group's rules is reported as not measured.
func runFilters(ctx context.Context, there []candidate, groups []*filterGroup, soft *softirqs, o Options) (_ *report.Report, err error) {
	var rows []Row
	var absent []report.Row
	var laid []*filterBed
	defer func() {
		for _, b := range laid {
			err = errors.Join(err, b.release())
		}
	}()
	cpu := LastCPU()
	for _, c := range there {
		// Groups with the same rules share a bed.
		beds, failed := map[[2]int]*filterBed{}, map[[2]int]error{}
		for _, g := range groups {
			if !g.has(c) {
				continue
			}
			key := [2]int{g.idle, g.set}
			if beds[key] == nil {
				b := newFilterBed(filters()[c.name](), g.rulesOf(c))
				beds[key], laid = b, append(laid, b)
				fmt.Fprintf(o.Progress, "laying the bed of %s@%s\n", c.name, g.name)
				failed[key] = b.use(ctx)
				if ctx.Err() != nil {
					return nil, fmt.Errorf("interrupted: %w", ctx.Err())
				}
			}
			if err := failed[key]; err != nil {
				note := "not measured: " + err.Error()
				absent = append(absent, report.Row{Name: c.name + "@" + g.name, FrameSize: filterFrame, Note: note})
				keep(o.Progress, fmt.Sprintf("leaving %s@%s out: %v", c.name, g.name, err))
				continue
			}
			rows = append(rows, &filterRow{name: c.name + "@" + g.name, group: g, bed: beds[key], soft: soft, cpu: cpu, from: cpu})
		}
	}
	samples, err := runRows(ctx, rows, RunOptions{Rounds: o.Rounds, Round: o.Round, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	r := filterReport(groups, rows, samples)
	r.Rows = append(r.Rows, absent...)
	return r, nil
}
