// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// palette assigns looks to names. Colors, marks and dashes differ within culvert's rows and within those of peers.
type palette struct{ warm, cold int }

func (p *palette) next(name string) swatch {
	family, n := cold, &p.cold
	if isCulvert(name) {
		family, n = warm, &p.warm
	}
	shape := shapes[(p.warm+p.cold)%len(shapes)]
	i := *n
	*n++
	return swatch{kind: "line", color: family[i%len(family)], shape: shape, dash: dashes[i%len(dashes)]}
}

func legendOf(curves []curve) []key {
	var keys []key
	for _, c := range curves {
		keys = append(keys, key{c.name, c.swatch})
	}
	for _, c := range curves {
		if slices.ContainsFunc(c.points, func(p spot) bool { return p.invalid }) {
			return append(keys, key{"invalid", swatch{kind: "cross", color: invalidColor}})
		}
	}
	return keys
}

// yValues are the y values of all points and of the ends of their error marks.
func yValues(curves []curve) []float64 {
	var values []float64
	for _, c := range curves {
		for _, p := range c.points {
			values = append(values, p.y.Min, p.y.Median, p.y.Max)
		}
	}
	return values
}

// plotNDR draws a line over frame lengths for each row, or bars if there is only one length. The point of a mix is not joined to
// the line.
func plotNDR(r *Report, rows []Row) figurePlot {
	sizes, series := pivot(rows)
	title := r.title("Highest rate without loss", rows)
	if len(sizes) == 1 {
		return barFigure(title, "million packets a second", rows, func(row Row) bar { return bar{value: *row.NDR, format: "%.3f"} })
	}
	p := linePanel{
		xUnit: "frame length in bytes, without frame check sequence", yUnit: "million packets a second", tall: 400,
		x: axis{lo: -0.5, hi: float64(len(sizes)) - 0.5},
	}
	for i, size := range sizes {
		p.xTicks = append(p.xTicks, tick{float64(i), size})
	}
	var looks palette
	for _, s := range series {
		c := curve{name: s.name, swatch: looks.next(s.name), marks: true}
		for i, size := range sizes {
			row := s.rows[size]
			if row == nil {
				continue
			}
			c.points = append(c.points, spot{
				x: float64(i), y: *row.NDR, alone: row.FrameSize == 0, invalid: !row.Valid,
				text: fmt.Sprintf("%s: %.3f Mpps", size, row.NDR.Median),
			})
		}
		p.curves = append(p.curves, c)
	}
	p.y, p.yTicks = linearAxis(yValues(p.curves))
	return figurePlot{title: title, legend: legendOf(p.curves), panels: []panel{p}}
}

// workersInName is the part of a row's name with the number of workers.
var workersInName = regexp.MustCompile(`[-@]?workers[0-9]+`)

// kindOf is the row's name without the number of workers.
func (row Row) kindOf() string {
	if kind := strings.Trim(workersInName.ReplaceAllString(row.Name, ""), "-@"); kind != "" {
		return kind
	}
	return "culvert"
}

// plotScaling draws the rate and the use of CPUs over the number of workers.
func plotScaling(r *Report, rows []Row) figurePlot {
	rate := linePanel{heading: "Throughput", xUnit: "worker CPUs", yUnit: "million packets a second", tall: 320}
	busy := linePanel{heading: "CPUs in use", xUnit: "worker CPUs", yUnit: "sum over all CPUs", tall: 320}
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(a, b Row) int { return cmp.Compare(*a.Workers, *b.Workers) })
	var kinds []string
	byKind := map[string][]Row{}
	most := 1
	for _, row := range sorted {
		most = max(most, *row.Workers)
	}
	for _, row := range rows {
		if k := row.kindOf(); !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	for _, row := range sorted {
		byKind[row.kindOf()] = append(byKind[row.kindOf()], row)
	}
	var looks palette
	for _, kind := range kinds {
		look := looks.next(kind)
		up, use := curve{name: kind, swatch: look, marks: true}, curve{name: kind, swatch: look, marks: true}
		for _, row := range byKind[kind] {
			x := float64(*row.Workers)
			up.points = append(up.points, spot{
				x: x, y: *row.Mpps, invalid: !row.Valid,
				text: fmt.Sprintf("%d workers: %.3f Mpps", *row.Workers, row.Mpps.Median),
			})
			if len(row.Use) > 0 {
				sum := row.busy()
				use.points = append(use.points, spot{
					x: x, y: Spread{sum, sum, sum}, invalid: !row.Valid,
					text: fmt.Sprintf("%d workers: %.2f CPUs", *row.Workers, sum),
				})
			}
		}
		rate.curves = append(rate.curves, up)
		if len(use.points) > 0 {
			busy.curves = append(busy.curves, use)
		}
	}
	f := figurePlot{title: r.title("Throughput by worker CPUs", rows), legend: legendOf(rate.curves), columns: 2}
	for _, p := range []linePanel{rate, busy} {
		if len(p.curves) == 0 {
			continue
		}
		p.x = axis{lo: -0.2, hi: float64(most) + 0.2}
		for n := 0; n <= most; n += 1 + most/12 {
			p.xTicks = append(p.xTicks, tick{float64(n), fmt.Sprint(n)})
		}
		p.y, p.yTicks = linearAxis(yValues(p.curves))
		f.panels = append(f.panels, p)
	}
	return f
}

// busy is the sum of the median use of all CPUs: 1 is one busy CPU.
func (row Row) busy() float64 {
	sum := 0.0
	for _, cpu := range cpus([]Row{row}) {
		sum += row.Use[cpu].Median
	}
	return sum
}

// plotLatency draws a panel for each load, with the latency distribution of each row.
func plotLatency(r *Report, rows []Row) figurePlot {
	var loads []float64
	for _, row := range rows {
		for _, l := range row.Latency {
			loads = append(loads, l.Load)
		}
	}
	slices.Sort(loads)
	loads = slices.Compact(loads)
	var looks palette
	look := map[string]curve{}
	f := figurePlot{title: r.title("Latency", rows), columns: min(len(loads), 3)}
	for _, row := range rows {
		c := curve{name: row.label(), swatch: looks.next(row.Name)}
		if !row.Valid {
			c.color, c.dash = invalidColor, "2 4"
		}
		look[row.Name] = c
		if len(row.Latency[0].Curve) > 0 {
			c.shape = ""
		}
		f.legend = append(f.legend, key{c.name, c.swatch})
	}
	var all []curve
	var panels []linePanel
	most := 0.0
	for _, load := range loads {
		p := linePanel{
			heading: fmt.Sprintf("At %.0f %% of the highest rate", 100*load), tall: 340,
			xUnit: "% of packets that took at most …", yUnit: "… microseconds",
		}
		for _, row := range rows {
			for _, l := range row.Latency {
				if l.Load != load {
					continue
				}
				c := look[row.Name]
				c.points, c.marks = l.distribution(), len(l.Curve) == 0
				for _, q := range c.points {
					most = max(most, 1-1/q.x)
				}
				p.curves = append(p.curves, c)
			}
		}
		all = append(all, p.curves...)
		panels = append(panels, p)
	}
	x, xTicks := shareAxis(most)
	y, yTicks := logAxis(yValues(all))
	for _, p := range panels {
		p.x, p.xTicks, p.y, p.yTicks = x, xTicks, y, yTicks
		f.panels = append(f.panels, p)
	}
	return f
}

// distribution has the points of the latency distribution from the median on: the latency in microseconds over tail(share). The
// axis of shareAxis has no place for 100 %, so the maximum is left out.
func (l Latency) distribution() []spot {
	points := l.Curve
	if len(points) == 0 {
		points = []Point{{0.5, l.P50}, {0.9, l.P90}, {0.99, l.P99}, {0.999, l.P999}}
	}
	var spots []spot
	for _, p := range points {
		if p.Share < 0.5 || p.Share > 0.99999 || p.Ns <= 0 {
			continue
		}
		us := p.Ns / 1000
		spots = append(spots, spot{
			x: tail(p.Share), y: Spread{us, us, us}, text: fmt.Sprintf("%s %%: %s µs", shareLabel(p.Share), micros(p.Ns)),
		})
	}
	return spots
}

// shareLabel writes a share as a percentage without zeros at the end.
func shareLabel(share float64) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.3f", 100*share), "0"), ".")
}
