// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"maps"
	"strings"

	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
)

// makeReport compares rows within their groups, and takes off what is not the filter's.
func makeReport(groups []*group, rows []scenario.Row, samples [][]scenario.Sample) *report.Report {
	all := &report.Report{
		Ratios: map[string]float64{}, RatioSpreads: map[string]report.Spread{}, SoftRatios: map[string]report.Spread{},
	}
	cost := map[string][]float64{}
	for i, row := range rows {
		cost[row.Name()] = softCosts(samples[i])
	}
	for _, g := range groups {
		var mine []scenario.Row
		var taken [][]scenario.Sample
		for i, row := range rows {
			if row.(*Row).group == g {
				mine, taken = append(mine, row), append(taken, samples[i])
			}
		}
		var against []string
		for _, name := range g.against() {
			against = append(against, name+"@"+g.name)
		}
		r := scenario.RateReport(mine, taken, against)
		for i := range r.Rows {
			softFigures(r.Rows[i].Filter, taken[i])
		}
		all.Rows = append(all.Rows, r.Rows...)
		maps.Copy(all.Ratios, r.Ratios)
		maps.Copy(all.RatioSpreads, r.RatioSpreads)
		for _, base := range against {
			for _, row := range mine {
				if name := row.Name(); name != base && len(cost[base]) > 0 {
					// The cheaper one takes more packets.
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

// softCosts are the nanoseconds of soft interrupt that a packet took, round by round.
func softCosts(samples []scenario.Sample) []float64 {
	var ns []float64
	for _, s := range samples {
		ns = append(ns, float64(s.Soft.Time.Nanoseconds())/float64(max(s.Received, 1)))
	}
	return ns
}

// softFigures fills in what the samples say of soft interrupts.
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

// netCosts takes off what the row's packets cost without a filter, and of a set what they cost with a rule that asks for
// none.
func netCosts(row *report.Row, cost map[string][]float64) {
	name, group, _ := strings.Cut(row.Name, "@")
	less := func(base string) *report.Spread {
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
		if net := less(base + "@" + group); net != nil {
			row.Filter.NetNs = net
		}
	}
	if set, temperature, _ := cutLast(group, "-"); name != "xdp-drop" && row.Filter.Set > 0 && strings.HasPrefix(set, "set-") {
		row.Filter.LookupNs = less(name + "@set-none-" + temperature)
	}
}

// cutLast cuts around the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}
