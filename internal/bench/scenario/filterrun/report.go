// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"maps"
	"strings"

	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
)

// makeReport makes the report. It compares rows with those of their group, and computes net costs.
func makeReport(groups []*group, rows []scenario.Row, samples [][]scenario.Sample) *report.Report {
	all := &report.Report{
		Ratios: map[string]float64{}, RatioSpreads: map[string]report.Spread{}, SoftRatios: map[string]report.Spread{},
	}
	cost := map[string][]float64{}
	for i, row := range rows {
		cost[row.Name()] = softCosts(samples[i])
	}
	for _, g := range groups {
		var groupRows []scenario.Row
		var groupSamples [][]scenario.Sample
		for i, row := range rows {
			if row.(*Row).group == g {
				groupRows, groupSamples = append(groupRows, row), append(groupSamples, samples[i])
			}
		}
		var against []string
		for _, name := range g.against() {
			against = append(against, name+"@"+g.name)
		}
		r := scenario.RateReport(groupRows, groupSamples, against)
		for i := range r.Rows {
			softFigures(r.Rows[i].Filter, groupSamples[i])
		}
		all.Rows = append(all.Rows, r.Rows...)
		maps.Copy(all.Ratios, r.Ratios)
		maps.Copy(all.RatioSpreads, r.RatioSpreads)
		for _, base := range against {
			for _, row := range groupRows {
				if name := row.Name(); name != base && len(cost[base]) > 0 {
					// The ratio is inverse to that of costs, because it is a ratio of rates.
					all.SoftRatios[name+"/"+base] = report.NewSpread(report.PairedRatios(cost[base], cost[name]))
				}
			}
		}
	}
	for i := range all.Rows {
		netCosts(&all.Rows[i], cost)
	}
	return all
}

// softCosts are the times of the receiving soft interrupt, in nanoseconds a packet, round by round.
func softCosts(samples []scenario.Sample) []float64 {
	var ns []float64
	for _, s := range samples {
		ns = append(ns, float64(s.Soft.Time.Nanoseconds())/float64(max(s.Received, 1)))
	}
	return ns
}

// softFigures sets the figures of soft interrupts from samples.
func softFigures(f *report.Filter, samples []scenario.Sample) {
	var share, mpps, raised []float64
	costs := softCosts(samples)
	for i, s := range samples {
		share = append(share, s.Soft.Share)
		raised = append(raised, float64(s.Soft.Runs)/s.Soft.Elapsed.Seconds())
		mpps = append(mpps, 1000/max(costs[i], 1e-3))
	}
	spread := func(values []float64) *report.Spread {
		s := report.NewSpread(values)
		return &s
	}
	f.SoftShare, f.NetRX, f.SoftNs, f.SoftMpps = spread(share), spread(raised), spread(costs), spread(mpps)
}

// netCosts sets the net costs of a row: its cost less that without a filter, and with a set also less that of a rule without a
// set.
func netCosts(row *report.Row, cost map[string][]float64) {
	name, group, _ := strings.Cut(row.Name, "@")
	netOf := func(base string) *report.Spread {
		if base == row.Name || len(cost[base]) == 0 {
			return nil
		}
		var net []float64
		for i, ns := range cost[row.Name] {
			net = append(net, ns-cost[base][i])
		}
		s := report.NewSpread(net)
		return &s
	}
	for _, base := range []string{"xdp-drop", "none"} {
		if net := netOf(base + "@" + group); net != nil {
			row.Filter.NetNs = net
		}
	}
	if set, temperature, _ := cutLast(group, "-"); name != "xdp-drop" && row.Filter.Set > 0 && strings.HasPrefix(set, "set-") {
		row.Filter.LookupNs = netOf(name + "@set-none-" + temperature)
	}
}

// cutLast cuts s around the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}
