// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"
)

// Plot is one picture of a report.
type Plot struct {
	// Kind is one of PlotKinds. The name of the picture's file ends in it.
	Kind string
	// SVG is the whole file. The same report always has the same bytes.
	SVG []byte
}

// plotKind is a kind of picture. It has the rows for which want is true.
type plotKind struct {
	kind string
	want func(Row) bool
	draw func(r *Report, rows []Row) figurePlot
}

// plotKinds are all kinds of pictures.
var plotKinds = []plotKind{
	{"rates", func(row Row) bool { return row.Mpps != nil }, plotRates},
	{"scaling", func(row Row) bool { return row.Mpps != nil && row.Workers != nil }, plotScaling},
	{"cost", func(row Row) bool { return row.NsPerPacket != nil && row.Mpps == nil }, plotCost},
	{"instructions", func(row Row) bool { return row.Instructions != nil }, plotInstructions},
	{"ndr", hasNDR, plotNDR},
	{"latency", hasLatency, plotLatency},
	{"floods", hasFloods, plotFloods},
}

// PlotKinds lists all kinds of pictures.
func PlotKinds() []string {
	var kinds []string
	for _, k := range plotKinds {
		kinds = append(kinds, k.kind)
	}
	return kinds
}

// Plots draws all pictures that the report has figures for.
func (r *Report) Plots() []Plot {
	var all []Plot
	for _, k := range plotKinds {
		if rows := keep(r.Rows, k.want); len(rows) > 0 {
			f := k.draw(r, rows)
			if absent := r.absent(); len(absent) > 0 {
				f.foot = append(f.foot, "not measured: "+strings.Join(absent, ", "))
			}
			f.foot = append(f.foot, r.Machine.String())
			all = append(all, Plot{Kind: k.kind, SVG: f.svg()})
		}
	}
	return all
}

// absent lists the rows that were not measured, without their variants.
func (r *Report) absent() []string {
	var names []string
	for _, row := range r.Rows {
		base, _, _ := strings.Cut(row.Name, "@")
		none := !slices.ContainsFunc(plotKinds, func(k plotKind) bool { return k.want(row) })
		if none && !row.Valid && !slices.Contains(names, base) {
			names = append(names, base)
		}
	}
	return names
}

// title is the title of a picture: its subject, the scenario, and the frame length if all rows have the same.
func (r *Report) title(subject string, rows []Row) string {
	parts := []string{subject, "scenario " + r.Scenario}
	if size := (group{rows: rows}).frameSize(); size > 0 {
		parts = append(parts, (group{rows: rows[:1]}).heading())
	}
	return strings.Join(parts, ", ")
}

func colorOf(name string) string {
	if isCulvert(name) {
		return warm[0]
	}
	return cold[0]
}

// barFigure draws one panel of bars for each variant, all on one scale.
func barFigure(title, unit string, rows []Row, toBar func(Row) bar) figurePlot {
	f := figurePlot{title: title, columns: 1}
	all := groups(rows)
	var values []float64
	var panels []barPanel
	var bars []bar
	spread, best, names := false, false, 0.0
	for _, g := range all {
		p := barPanel{unit: unit}
		if len(all) > 1 {
			p.heading = g.heading()
		}
		for _, row := range g.rows {
			b := toBar(row)
			b.name, b.color, b.valid = shortIn(row.Name, g.variant), colorOf(row.Name), row.Valid
			values = append(values, b.value.Median, b.value.Min, b.value.Max)
			spread = spread || b.value.Min != b.value.Max
			if b.best != nil {
				best, values = true, append(values, *b.best)
			}
			names = max(names, labelStyle.width(b.name))
			p.bars, bars = append(p.bars, b), append(bars, b)
		}
		panels = append(panels, p)
	}
	a, ticks := linearAxis(values)
	for _, p := range panels {
		p.axis, p.ticks, p.names, p.fit = a, ticks, names, bars
		f.panels = append(f.panels, p)
	}
	if len(panels) > 2 {
		f.columns = 2
	}
	f.legend = barLegend(rows, spread, best)
	return f
}

func barLegend(rows []Row, spread, best bool) []key {
	var keys []key
	if slices.ContainsFunc(rows, func(row Row) bool { return row.Valid && isCulvert(row.Name) }) {
		keys = append(keys, key{"culvert", swatch{kind: "bar", color: warm[0]}})
	}
	if slices.ContainsFunc(rows, func(row Row) bool { return row.Valid && !isCulvert(row.Name) }) {
		keys = append(keys, key{"peers", swatch{kind: "bar", color: cold[0]}})
	}
	if slices.ContainsFunc(rows, func(row Row) bool { return !row.Valid }) {
		keys = append(keys, key{"invalid", swatch{kind: "bar", color: invalidFill}})
	}
	if spread {
		keys = append(keys, key{"smallest to largest of all rounds", swatch{kind: "range"}})
	}
	if best {
		keys = append(keys, key{"best", swatch{kind: "diamond", color: bestColor}})
	}
	return keys
}

func plotRates(r *Report, rows []Row) figurePlot {
	f := barFigure(r.title("Throughput", rows), "million packets a second, median", rows, func(row Row) bar {
		return bar{value: *row.Mpps, format: "%.2f"}
	})
	// Slow rows need another digit. Then all rows have it, so that figures can be compared.
	for _, row := range rows {
		if row.Mpps.Median < 1 {
			for _, p := range f.panels {
				for i := range p.(barPanel).bars {
					p.(barPanel).bars[i].format = "%.3f"
				}
			}
			break
		}
	}
	return f
}

func plotCost(r *Report, rows []Row) figurePlot {
	return barFigure(r.title("Cost of a packet", rows), "nanoseconds a packet, net of an empty program, median", rows,
		func(row Row) bar { return bar{value: *row.NsPerPacket, format: "%.1f", best: row.Best} })
}

func plotInstructions(r *Report, rows []Row) figurePlot {
	return barFigure(r.title("Instructions for a packet", rows), "instructions a packet", rows, func(row Row) bar {
		return bar{value: Spread{*row.Instructions, *row.Instructions, *row.Instructions}, format: "%.0f"}
	})
}
