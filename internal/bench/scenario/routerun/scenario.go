// SPDX-License-Identifier: Apache-2.0

// Package routerun measures IP routers: with few and with many routes, to few and to many destinations, and while routes
// change.
package routerun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
)

// comparedWith are the rows that the other rows of their group are compared with.
var comparedWith = []string{"linux", "redirect", "fib", "mirror"}

// churnRows are the rows that are measured while routes change, unless rows are named.
var churnRows = []string{"linux", "fib", "mirror"}

// candidates are the rows of scenario route, in the order of reports.
func candidates() []peer.Candidate {
	program := func(name string) func(peer.DeviceOptions) peer.Device {
		return func(peer.DeviceOptions) peer.Device { return &programDevice{program: name} }
	}
	return []peer.Candidate{
		{Name: "linux", Device: program(load.BenchProgBenchEmpty)},
		{Name: "redirect", Device: program(load.BenchProgBenchRedirect)},
		{Name: "fib", Device: program(load.BenchProgBenchFib)},
		{Name: "mirror", Device: func(peer.DeviceOptions) peer.Device { return &culvert{} }},
		{Name: "culvert-fib", Device: func(peer.DeviceOptions) peer.Device { return &culvert{noMirror: true} }},
		// Debian 12 does not have xdp-forward.
		{Name: "xdp-forward", ByNameOnly: true, Device: func(peer.DeviceOptions) peer.Device { return &xdpForward{} }},
	}
}

// Scenario is the scenario that measures IP routers.
func Scenario() scenario.Scenario {
	return scenario.Scenario{Name: "route", Rounds: 7, Round: 250 * time.Millisecond, Candidates: candidates(), Run: run}
}

// run measures the throughput of routers with few routes and with a full table, to few and to many destinations, and whether
// they lose packets while routes change. Rows of all groups take turns, so that groups can be compared too.
func run(ctx context.Context, chosen []peer.Candidate, o scenario.Options) (r *report.Report, err error) {
	groups, err := chosenGroups(o)
	if err != nil {
		return nil, err
	}
	missing, err := o.Missing(chosen)
	if err != nil {
		return nil, err
	}
	available := slices.DeleteFunc(slices.Clone(chosen), func(c peer.Candidate) bool { return missing[c.Name] != nil })
	beds, err := newBeds(ctx, o, groups, available)
	defer func() {
		for _, b := range beds {
			err = errors.Join(err, b.Close())
		}
	}()
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, g := range groups {
			if g.gen != nil {
				err = errors.Join(err, g.gen.Close())
			}
		}
	}()
	cpu := load.LastCPU()
	var steady, changing []scenario.Row
	for _, g := range groups {
		b := beds[g.kind()]
		fmt.Fprintf(o.Progress, "making the packets of %s\n", g)
		if err := g.generator(b, cpu); err != nil {
			return nil, err
		}
		for _, c := range available {
			switch {
			case !g.churn:
				steady = append(steady, newRow(c, g, b, cpu))
			case slices.Contains(churnRows, c.Name) || slices.Contains(o.Rows, c.Name):
				changing = append(changing, newRow(c, g, b, cpu))
			}
		}
	}
	run := scenario.RunOptions{Rounds: o.Rounds, Round: o.Round, Progress: o.Progress}
	samples, err := scenario.RunRows(ctx, steady, run)
	if err != nil {
		return nil, err
	}
	run.Rounds = (o.Rounds + 2) / 3
	more, err := scenario.RunRows(ctx, changing, run)
	if err != nil {
		return nil, err
	}
	return makeReport(groups, chosen, missing, append(steady, changing...), append(samples, more...)), nil
}

// newBeds makes the beds that the groups need, by the kind of their table, and prepares the devices under test. The
// caller must close all beds returned, also after an error.
func newBeds(ctx context.Context, o scenario.Options, groups []*group, available []peer.Candidate) (map[tableKind]*bed, error) {
	beds := map[tableKind]*bed{}
	for _, g := range groups {
		if beds[g.kind()] != nil {
			continue
		}
		table, err := g.routes(o)
		if err != nil {
			return beds, err
		}
		fmt.Fprintf(o.Progress, "installing %d routes of IPv4 and %d of IPv6\n", len(table.v4), len(table.v6))
		b, err := newBed(ctx, table)
		beds[g.kind()] = b
		if err != nil {
			return beds, err
		}
		fmt.Fprintf(o.Progress, "installed in %s\n", b.install.Round(time.Millisecond))
		for _, c := range available {
			if err := ctx.Err(); err != nil {
				return beds, fmt.Errorf("interrupted: %w", err)
			}
			fmt.Fprintf(o.Progress, "setting up %s\n", c.Name)
			if err := b.prepare(ctx, c, o); err != nil {
				return beds, err
			}
		}
	}
	return beds, nil
}

// generator makes the generator of the group's packets.
func (g *group) generator(b *bed, cpu int) error {
	frames, err := g.frames(b.table, b.path)
	if err != nil {
		return err
	}
	g.gen, err = load.NewGenerator(load.GeneratorOptions{Frames: frames, From: b.path.Source, CPU: cpu})
	return err
}

// makeReport makes the report. It compares rows with those of their group, and each row with itself with few routes.
func makeReport(groups []*group, chosen []peer.Candidate, missing map[string]error, rows []scenario.Row, samples [][]scenario.Sample) *report.Report {
	all := &report.Report{Ratios: map[string]float64{}, RatioSpreads: map[string]report.Spread{}}
	for _, g := range groups {
		var groupRows []scenario.Row
		var groupSamples [][]scenario.Sample
		for i, row := range rows {
			if row.(*Row).group == g {
				groupRows, groupSamples = append(groupRows, row), append(groupSamples, samples[i])
			}
		}
		var against []string
		if !g.churn {
			for _, name := range comparedWith {
				against = append(against, name+"@"+g.String())
			}
		}
		r := scenario.RateReport(groupRows, groupSamples, against)
		all.Rows = append(all.Rows, r.Rows...)
		maps.Copy(all.Ratios, r.Ratios)
		maps.Copy(all.RatioSpreads, r.RatioSpreads)
		for _, c := range chosen {
			// A missing row is reported only in the first group.
			if err := missing[c.Name]; err != nil && g == groups[0] {
				all.Rows = append(all.Rows, report.Row{
					Name: c.Name + "@" + g.String(), FrameSize: frameLen, Note: "not measured: " + err.Error(),
				})
			}
		}
	}
	compareWithFew(all, groups)
	noteMirrors(all, groups)
	return all
}

// compareWithFew compares each row with a full table with the same row with few routes, and with several gateways with one.
func compareWithFew(all *report.Report, groups []*group) {
	rates := map[string][]float64{}
	for _, row := range all.Rows {
		rates[row.Name] = row.Samples["mpps"]
	}
	for _, g := range groups {
		few := g.base()
		if few == nil {
			continue
		}
		for _, name := range Scenario().RowNames() {
			full, base := name+"@"+g.String(), name+"@"+few.String()
			if len(rates[full]) == 0 || len(rates[base]) == 0 {
				continue
			}
			spread := report.NewSpread(report.PairedRatios(rates[full], rates[base]))
			all.Ratios[full+"/"+base], all.RatioSpreads[full+"/"+base] = spread.Median, spread
		}
	}
}

// noteMirrors adds notes about the time and memory of mirrors. Each device has one note for each kind of table.
func noteMirrors(all *report.Report, groups []*group) {
	type mirror struct {
		name string
		kind tableKind
	}
	noted := map[mirror]bool{}
	for _, g := range groups {
		for i := range all.Rows {
			row := &all.Rows[i]
			name, inGroup := strings.CutSuffix(row.Name, "@"+g.String())
			t, key := row.Routes, mirror{name, g.kind()}
			if !inGroup || noted[key] || t == nil || t.Sync == 0 {
				continue
			}
			noted[key] = true
			note := fmt.Sprintf("current %.2f s after its start; %.1f MiB of maps, %.1f MiB in the process", t.Sync,
				float64(t.MapBytes)/(1<<20), float64(t.ProcessBytes)/(1<<20))
			row.Note = strings.TrimPrefix(row.Note+"; "+note, "; ")
		}
	}
}
