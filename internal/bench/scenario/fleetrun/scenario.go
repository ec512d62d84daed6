// SPDX-License-Identifier: Apache-2.0

// Package fleetrun measures a fleet: simulated nodes, with the code of real ones and without their data planes, against a real etcd of
// three members.
package fleetrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
)

// Scenario is the scenario that measures a fleet.
func Scenario() scenario.Scenario {
	var all []peer.Candidate
	for _, m := range measurements {
		all = append(all, peer.Candidate{Name: m.name})
	}
	return scenario.Scenario{Name: "fleet", Rounds: 5, Round: 10 * time.Second, Candidates: all, Run: run}
}

// defaultNodes is how many nodes there are unless the options say otherwise.
const defaultNodes = 1000

// measurement is a row.
type measurement struct {
	name string
	// few is set if a round takes so long that there are few.
	few  bool
	does func(context.Context, *bed, *rounds) error
}

// fewRounds is how many rounds the rows have at most whose rounds take long.
const fewRounds = 3

// measurements are the rows, in the order in which they are measured.
var measurements = []measurement{
	{name: "urgent", does: urgent},
	{name: "apply", few: true, does: apply},
	{name: "look", does: look},
	{name: "quiet", few: true, does: quiet},
	{name: "idle", few: true, does: idle},
	{name: "restart", few: true, does: restart},
	{name: "sets", few: true, does: distribute},
}

func find(name string) measurement {
	for _, m := range measurements {
		if m.name == name {
			return m
		}
	}
	return measurement{}
}

// run measures the rows with each number of nodes, one after the other: a fleet takes all of the machine.
func run(ctx context.Context, chosen []peer.Candidate, o scenario.Options) (*report.Report, error) {
	if len(o.Nodes) == 0 {
		o.Nodes = []int{defaultNodes}
	}
	r := &report.Report{}
	for _, nodes := range o.Nodes {
		if nodes < 2 || nodes > mostNodes {
			return nil, fmt.Errorf("%w --nodes %d: give 2 to %d", scenario.ErrOption, nodes, mostNodes)
		}
		rows, err := runFleet(ctx, chosen, nodes, o)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("interrupted: %w", ctx.Err())
		}
		if err != nil {
			return nil, fmt.Errorf("a fleet of %d nodes: %w", nodes, err)
		}
		r.Rows = append(r.Rows, rows...)
	}
	return r, nil
}

// runFleet measures the rows with one fleet.
func runFleet(ctx context.Context, chosen []peer.Candidate, nodes int, o scenario.Options) (rows []report.Row, err error) {
	b, err := newBed(ctx, nodes, o)
	defer func() { err = errors.Join(err, b.close()) }()
	if err != nil {
		return nil, err
	}
	for _, c := range chosen {
		m := find(c.Name)
		r := &rounds{
			name: fmt.Sprintf("%s@nodes%d", c.Name, nodes), count: o.Rounds, each: o.Round, entries: entries(o), progress: o.Progress,
			values: make(map[string][]float64),
		}
		if m.few {
			r.count = min(r.count, fewRounds)
		}
		if err := m.does(ctx, b, r); err != nil {
			return nil, fmt.Errorf("measure %s: %w", r.name, err)
		}
		if err := b.healthy(); err != nil {
			return nil, fmt.Errorf("after %s: %w", r.name, err)
		}
		rows = append(rows, r.row(nodes))
	}
	return rows, nil
}

// setEntries is how many prefixes the large set has.
const setEntries = 1_000_000

func entries(o scenario.Options) int {
	if o.Sample > 0 {
		return o.Sample
	}
	return setEntries
}
