// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"strings"

	"culvert/internal/bench/load"
	"culvert/internal/bench/report"
)

// RateReport makes the report of rows from their samples, and compares every row with those named in against.
func RateReport(rows []Row, samples [][]Sample, against []string) *report.Report {
	r := &report.Report{Ratios: map[string]float64{}, RatioSpreads: map[string]report.Spread{}}
	rates := map[string][]float64{}
	for i, row := range rows {
		out := report.Row{Name: row.Name(), Lost: map[string]uint64{}, Valid: true}
		if d, ok := row.(described); ok {
			d.Describe(&out)
		}
		var mpps, offered, ns []float64
		used := map[int][]float64{}
		var asked float64
		var exact bool
		var missing int64
		for _, s := range samples[i] {
			mpps = append(mpps, s.Mpps())
			offered = append(offered, s.Offered())
			if s.Mpps() > 0 {
				ns = append(ns, 1000/s.Mpps())
			}
			for cpu, use := range s.Use {
				used[cpu] = append(used[cpu], use)
			}
			out.Order = addOrder(out.Order, s.Order)
			out.Sent += s.Sent
			out.Received += s.Received
			for where, n := range s.Lost {
				if n > 0 {
					out.Lost[where] += n
				}
			}
			out.Note, asked, exact = s.Note, s.Asked, s.Exact
			if !s.Accounted() {
				out.Valid = false
				missing += s.Missing()
			}
		}
		if !out.Valid {
			out.Note = fmt.Sprintf("invalid: %d packets not accounted for", missing)
		}
		if short := load.Shortfall(asked, 1e6*report.NewSpread(offered).Median); short != "" {
			out.Note = strings.TrimPrefix(out.Note+"; "+short, "; ")
			out.Valid = out.Valid && !exact
		}
		arrived, sent, cost := report.NewSpread(mpps), report.NewSpread(offered), report.NewSpread(ns)
		out.Mpps, out.Offered, out.NsPerPacket = &arrived, &sent, &cost
		for cpu, shares := range used {
			if out.Use == nil {
				out.Use = map[int]report.Spread{}
			}
			out.Use[cpu] = report.NewSpread(shares)
		}
		out.Samples = map[string][]float64{"mpps": mpps}
		rates[out.Name] = mpps
		r.Rows = append(r.Rows, out)
	}
	for _, base := range against {
		for name, mpps := range rates {
			if name != base && rates[base] != nil {
				spread := report.NewSpread(report.PairedRatios(mpps, rates[base]))
				r.Ratios[name+"/"+base], r.RatioSpreads[name+"/"+base] = spread.Median, spread
			}
		}
	}
	return r
}

// addOrder adds o to sum. The sum of nil values is nil.
func addOrder(sum, o *report.Order) *report.Order {
	if o == nil {
		return sum
	}
	if sum == nil {
		sum = &report.Order{}
	}
	sum.Packets += o.Packets
	sum.Missing += o.Missing
	sum.Duplicates += o.Duplicates
	sum.Reordered += o.Reordered
	sum.Late += o.Late
	return sum
}

// CostGroup is the name of the groups that measure the cost of programs by themselves.
const CostGroup = "cost"

// CostReport makes the report of costs.
func CostReport(rows []load.CostRow) *report.Report {
	r := &report.Report{}
	for _, c := range rows {
		r.Rows = append(r.Rows, report.Row{
			Name: c.Name, NsPerPacket: &c.Net, Best: &c.Best, Empty: &c.Empty, Frames: c.Frames, Valid: true,
			Samples: map[string][]float64{"ns_per_packet": c.NetRounds, "empty_ns_per_packet": c.EmptyRounds},
		})
	}
	return r
}
