// SPDX-License-Identifier: Apache-2.0

// Package lbrun measures load balancers with a service of a hundred backends: packets and connections.
package lbrun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
)

// comparedWith are the rows that the other rows of their group are compared with.
var comparedWith = []string{"redirect", "linux-forward", "nft-jhash", "nft-netdev", "iptables-statistic"}

// Scenario is the scenario that measures load balancers.
func Scenario() scenario.Scenario {
	return scenario.Scenario{Name: "lb", Rounds: 9, Round: 250 * time.Millisecond, Candidates: candidates(), Run: run}
}

// run measures load balancers with one service of a hundred backends: packets of a thousand clients, a SYN flood, a million
// flows, one to all CPUs, and connections. It also measures the cost of culvert's program by itself.
func run(ctx context.Context, chosen []peer.Candidate, o scenario.Options) (r *report.Report, err error) {
	groups, err := chosenGroups(o)
	if err != nil {
		return nil, err
	}
	missing, err := findMissing(o, groups, chosen)
	if err != nil {
		return nil, err
	}
	r = &report.Report{Ratios: map[string]float64{}, RatioSpreads: map[string]report.Spread{}}
	for i, g := range groups {
		part := o
		if i > 0 {
			part.Rounds = (o.Rounds + 1) / 2
		}
		available := slices.DeleteFunc(slices.Clone(chosen), func(c peer.Candidate) bool { return missing[c.Name] != nil || !g.has(c) })
		if len(available) == 0 {
			continue
		}
		measure := runBalancers
		switch {
		case g.tcp:
			measure = runConnections
		case g.cost:
			measure = runCosts
		}
		one, err := measure(ctx, available, g, part)
		if err != nil {
			return nil, err
		}
		r.Rows = append(r.Rows, one.Rows...)
		maps.Copy(r.Ratios, one.Ratios)
		maps.Copy(r.RatioSpreads, one.RatioSpreads)
	}
	for _, c := range chosen {
		if err := missing[c.Name]; err != nil {
			r.Rows = append(r.Rows, report.Row{Name: c.Name, FrameSize: frameLen, Note: "not measured: " + err.Error()})
		}
	}
	if len(r.Rows) == 0 {
		return nil, fmt.Errorf("%w --groups and --rows: none of the groups has any of the rows", scenario.ErrOption)
	}
	return r, nil
}

// findMissing finds the rows whose balancer cannot be used on this machine. The errors, by row, say what is missing. If a row in
// o.Rows is among them, findMissing returns an error instead.
func findMissing(o scenario.Options, groups []*group, chosen []peer.Candidate) (map[string]error, error) {
	missing, err := o.Missing(chosen)
	if err != nil {
		return nil, err
	}
	for _, c := range chosen {
		newConnector := connectors()[c.Name]
		if newConnector == nil || missing[c.Name] != nil || !slices.ContainsFunc(groups, func(g *group) bool { return g.tcp }) {
			continue
		}
		err := newConnector().available()
		switch {
		case err == nil:
			continue
		case slices.Contains(o.Rows, c.Name):
			return nil, fmt.Errorf("set %s up: %w", c.Name, err)
		}
		missing[c.Name] = err
		scenario.KeepLine(o.Progress, fmt.Sprintf("leaving %s out: %v", c.Name, err))
	}
	return missing, nil
}

// has tells whether the group has a row.
func (g *group) has(c peer.Candidate) bool {
	switch {
	case g.tcp:
		return connectors()[c.Name] != nil
	case g.cost:
		return c.Name == rowCulvert
	}
	return c.Device != nil
}

// runBalancers measures the rows that balance packets, in turns.
func runBalancers(ctx context.Context, available []peer.Candidate, g *group, o scenario.Options) (r *report.Report, err error) {
	if g.hasLargeTable() {
		// There is room for more flows than needed, so that none is evicted.
		restore, err := roomForFlows(ctx, g.flows+g.flows/4)
		defer func() { err = errors.Join(err, restore()) }()
		if err != nil {
			return nil, err
		}
	}
	var rows []scenario.Row
	for _, c := range available {
		rows = append(rows, newRow(c, g, o))
	}
	samples, err := scenario.RunRows(ctx, rows, scenario.RunOptions{Rounds: o.Rounds, Round: o.Round, Progress: o.Progress})
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", g.name, err)
	}
	against := make([]string, len(comparedWith))
	for i, name := range comparedWith {
		against[i] = name + "@" + g.name
	}
	return scenario.RateReport(rows, samples, against), nil
}
