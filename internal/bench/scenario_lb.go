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

// lbAgainst are the rows that others of their group are compared with.
var lbAgainst = []string{"redirect", "linux-forward", "nft-jhash", "nft-netdev", "iptables-statistic"}

// LBScenario is about load balancers.
func LBScenario() Scenario {
	return Scenario{Name: "lb", Rounds: 9, Round: 250 * time.Millisecond, Candidates: lbCandidates(), Run: runLB}
}

// runLB measures load balancers: one service with a hundred backends, the packets of a thousand clients, a flood of SYNs, a
// million flows, one CPU to all, and connections beside a proxy; and what culvert takes for a packet by itself.
func runLB(ctx context.Context, chosen []candidate, o Options) (r *report.Report, err error) {
	groups, err := chosenLBGroups(o)
	if err != nil {
		return nil, err
	}
	missing, err := missingBalancers(o, groups, chosen)
	if err != nil {
		return nil, err
	}
	r = &report.Report{Ratios: map[string]float64{}, RatioSpreads: map[string]report.Spread{}}
	for i, g := range groups {
		part := o
		if i > 0 {
			part.Rounds = (o.Rounds + 1) / 2
		}
		there := slices.DeleteFunc(slices.Clone(chosen), func(c candidate) bool { return missing[c.name] != nil || !g.has(c) })
		if len(there) == 0 {
			continue
		}
		measure := runBalancers
		switch {
		case g.tcp:
			measure = runConnections
		case g.cost:
			measure = runLBCosts
		}
		one, err := measure(ctx, there, g, part)
		if err != nil {
			return nil, err
		}
		r.Rows = append(r.Rows, one.Rows...)
		maps.Copy(r.Ratios, one.Ratios)
		maps.Copy(r.RatioSpreads, one.RatioSpreads)
	}
	for _, c := range chosen {
		if err := missing[c.name]; err != nil {
			r.Rows = append(r.Rows, report.Row{Name: c.name, FrameSize: lbFrame, Note: "not measured: " + err.Error()})
		}
	}
	if len(r.Rows) == 0 {
		return nil, fmt.Errorf("%w --groups and --rows: none of the groups has any of the rows", ErrOption)
	}
	return r, nil
}

// missingBalancers finds the rows that the machine lacks something for, with what it is. It is an error if they were asked
// for by name.
func missingBalancers(o Options, groups []*lbGroup, chosen []candidate) (map[string]error, error) {
	missing, err := o.missing(chosen)
	if err != nil {
		return nil, err
	}
	for _, c := range chosen {
		connect := connectors()[c.name]
		if connect == nil || missing[c.name] != nil || !slices.ContainsFunc(groups, func(g *lbGroup) bool { return g.tcp }) {
			continue
		}
		err := connect().available()
		switch {
		case err == nil:
			continue
		case slices.Contains(o.Rows, c.name):
			return nil, fmt.Errorf("set %s up: %w", c.name, err)
		}
		missing[c.name] = err
		keep(o.Progress, fmt.Sprintf("leaving %s out: %v", c.name, err))
	}
	return missing, nil
}

// has tells whether the group has a row.
func (g *lbGroup) has(c candidate) bool {
	switch {
	case g.tcp:
		return connectors()[c.name] != nil
	case g.cost:
		return c.name == lbRowCulvert
	}
	return c.device != nil
}

// runBalancers measures the rows that balance packets, in turns.
func runBalancers(ctx context.Context, there []candidate, g *lbGroup, o Options) (r *report.Report, err error) {
	if g.table() {
		// Some more than there are, so that none has to make room.
		back, err := roomForFlows(g.flows + g.flows/4)
		defer func() { err = errors.Join(err, back()) }()
		if err != nil {
			return nil, err
		}
	}
	var rows []Row
	for _, c := range there {
		rows = append(rows, newLBRow(c, g, o))
	}
	samples, err := runRows(ctx, rows, RunOptions{Rounds: o.Rounds, Round: o.Round, Progress: o.Progress})
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", g.name, err)
	}
	against := make([]string, len(lbAgainst))
	for i, name := range lbAgainst {
		against[i] = name + "@" + g.name
	}
	return rateReport(rows, samples, against), nil
}
