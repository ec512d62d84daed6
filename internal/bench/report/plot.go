// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"
)

// Plot is one picture of a report.
type Plot struct {
	// Kind says what it shows, and ends the name of its file: rates, cost, instructions, scaling, ndr, latency
	// or floods.
	Kind string
	// SVG is the whole file. The same report gives the same bytes.
	SVG []byte
}

// plotKind is a kind of picture, with what rows must have to be in one.
type plotKind struct {
	kind string
	want func(Row) bool
	draw func(r *Report, rows []Row) figurePlot
}

// plotKinds are all there are.
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

// absent lists the rows without any figure, without their variants.
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

// title names what is shown, the scenario, and the length of frames where all have the same.
func (r *Report) title(what string, rows []Row) string {
	parts := []string{what, "scenario " + r.Scenario}
	if size := (group{rows: rows}).frameSize(); size > 0 {
		parts = append(parts, (group{rows: rows[:1]}).heading())
	}
	return strings.Join(parts, ", ")
}

func colourOf(name string) string {
	if ours(name) {
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
			b.name, b.colour, b.valid = shortIn(row.Name, g.variant), colourOf(row.Name), row.Valid
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
	if slices.ContainsFunc(rows, func(row Row) bool { return row.Valid && ours(row.Name) }) {
		keys = append(keys, key{"culvert", swatch{kind: "bar", colour: warm[0]}})
	}
	if slices.ContainsFunc(rows, func(row Row) bool { return row.Valid && !ours(row.Name) }) {
		keys = append(keys, key{"peers", swatch{kind: "bar", colour: cold[0]}})
	}
	if slices.ContainsFunc(rows, func(row Row) bool { return !row.Valid }) {
		keys = append(keys, key{"invalid", swatch{kind: "bar", colour: invalidFill}})
	}
	if spread {
		keys = append(keys, key{"smallest to largest of all rounds", swatch{kind: "range"}})
	}
	if best {
		keys = append(keys, key{"best", swatch{kind: "diamond", colour: bestColour}})
	}
	return keys
}

func plotRates(r *Report, rows []Row) figurePlot {
	f := barFigure(r.title("Throughput", rows), "million packets a second, median", rows, func(row Row) bar {
		return bar{value: *row.Mpps, format: "%.2f"}
	})
	// Slow rows need another digit, and then all get it: figures below each other are compared.
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
