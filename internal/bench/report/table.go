// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// WriteTable writes the report as Markdown that is also readable on a terminal. It has a table for each variant of the rows, tables
// for no drop rates, latencies, floods, connections and fleets, then notes and the machine.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	if rows := keep(r.Rows, hasNDR); len(rows) > 0 {
		b.WriteString("Highest rate without loss, in Mpps, by frame length in bytes\n\n")
		writeMarkdown(&b, ndrColumns(rows))
		b.WriteByte('\n')
	}
	plain := groups(keep(r.Rows, hasFigures))
	for _, g := range plain {
		if h := g.heading(); h != "" && len(plain) > 1 {
			b.WriteString(h + "\n\n")
		}
		writeMarkdown(&b, r.columns(g))
		b.WriteByte('\n')
	}
	if rows := keep(r.Rows, hasLatency); len(rows) > 0 {
		b.WriteString("Latency in µs\n\n")
		writeMarkdown(&b, latencyColumns(rows))
		b.WriteByte('\n')
	}
	if rows := keep(r.Rows, hasFloods); len(rows) > 0 {
		b.WriteString("Transactions a second of an innocent client, by the rate of a flood\n\n")
		writeMarkdown(&b, floodColumns(rows))
		b.WriteByte('\n')
	}
	if rows := keep(r.Rows, hasConnections); len(rows) > 0 {
		b.WriteString("Connections of TCP clients\n\n")
		writeMarkdown(&b, r.connectionsColumns(rows))
		b.WriteByte('\n')
	}
	if rows := keep(r.Rows, hasFleet); len(rows) > 0 {
		b.WriteString("A fleet of simulated nodes\n\n")
		writeMarkdown(&b, fleetColumns(rows))
		b.WriteByte('\n')
	}
	r.writeNotes(&b)
	fmt.Fprintf(&b, "%s\n", r.Machine)
	_, err := io.WriteString(w, b.String())
	return err
}

func hasNDR(row Row) bool     { return row.NDR != nil }
func hasLatency(row Row) bool { return len(row.Latency) > 0 }

// hasFigures tells whether a row belongs into a table of rates and costs. A row without any figures does too, so that each row is in
// a table.
func hasFigures(row Row) bool {
	return row.Mpps != nil || row.NsPerPacket != nil || row.Instructions != nil ||
		!hasNDR(row) && !hasLatency(row) && !hasFloods(row) && !hasConnections(row) && !hasFleet(row)
}

func keep(rows []Row, want func(Row) bool) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(row Row) bool { return !want(row) })
}

// label is the row's name in a table. It says if the row is invalid.
func (row Row) label() string {
	if row.Valid {
		return row.Name
	}
	return row.Name + " (invalid)"
}

// columns are the columns of a table of rates, costs and instructions.
func (r *Report) columns(g group) []column {
	name := column{head: "row", left: true}
	for _, row := range g.rows {
		name.add(row.label())
	}
	all := []column{name}
	add := func(head string, cell func(row Row) string) {
		c := column{head: head}
		for _, row := range g.rows {
			c.add(cell(row))
		}
		all = append(all, c)
	}
	add("workers", func(row Row) string {
		if row.Workers == nil {
			return ""
		}
		return fmt.Sprint(*row.Workers)
	})
	add("Mpps", func(row Row) string { return figure(row.Mpps, Spread.median, "%.3f") })
	add("min", func(row Row) string { return figure(row.Mpps, Spread.least, "%.3f") })
	add("max", func(row Row) string { return figure(row.Mpps, Spread.most, "%.3f") })
	// Only costs have a spread and decimals. The time per packet of a rate is only its inverse.
	add("ns/packet", func(row Row) string {
		if row.Mpps != nil {
			return figure(row.NsPerPacket, Spread.median, "%.0f")
		}
		return figure(row.NsPerPacket, Spread.median, "%.1f")
	})
	cost := func(part func(Spread) float64) func(Row) string {
		return func(row Row) string {
			if row.Mpps != nil {
				return ""
			}
			return figure(row.NsPerPacket, part, "%.1f")
		}
	}
	add("min", cost(Spread.least))
	add("max", cost(Spread.most))
	add("best", func(row Row) string { return number(row.Best, "%.1f") })
	add("instructions", func(row Row) string { return number(row.Instructions, "%.1f") })
	filterColumns(add)
	add("frames", func(row Row) string {
		if row.Frames == 0 {
			return ""
		}
		return fmt.Sprint(row.Frames)
	})
	for _, base := range r.bases(g) {
		add("x "+shortIn(base, g.variant), func(row Row) string { return r.ratioCell(row.Name, base) })
	}
	for _, variant := range r.ownVariants(g) {
		add("x @"+variant, func(row Row) string {
			base, _ := split(row.Name)
			return r.ratioCell(row.Name, base+"@"+variant)
		})
	}
	for _, base := range r.bases(g) {
		add("soft x "+shortIn(base, g.variant), func(row Row) string { return r.softRatioCell(row.Name, base) })
	}
	add("offered", func(row Row) string { return figure(row.Offered, Spread.median, "%.3f") })
	add("lost", Row.lostCell)
	for _, cpu := range cpus(g.rows) {
		add(fmt.Sprintf("CPU %d", cpu), func(row Row) string {
			use, known := row.Use[cpu]
			if !known {
				return ""
			}
			return fmt.Sprintf("%.0f %%", 100*use.Median)
		})
	}
	order := func(count func(*Order) uint64) func(Row) string {
		return func(row Row) string {
			if row.Order == nil {
				return ""
			}
			return fmt.Sprint(count(row.Order))
		}
	}
	add("reordered", order(func(o *Order) uint64 { return o.Reordered }))
	add("missing", order(func(o *Order) uint64 { return o.Missing }))
	add("duplicates", order(func(o *Order) uint64 { return o.Duplicates }))
	return all
}

// bases lists the rows that rows of the group are compared with, in the order of the report. It leaves out the other variants of a
// row itself (see ownVariants).
func (r *Report) bases(g group) []string {
	var names []string
	for _, base := range r.Rows {
		for _, row := range g.rows {
			if _, known := r.Ratios[row.Name+"/"+base.Name]; known && !namesake(row.Name, base.Name) {
				names = append(names, base.Name)
				break
			}
		}
	}
	return names
}

// ownVariants lists the variants for which rows of the group are compared with themselves.
func (r *Report) ownVariants(g group) []string {
	var variants []string
	for _, base := range r.Rows {
		for _, row := range g.rows {
			_, variant := split(base.Name)
			_, known := r.Ratios[row.Name+"/"+base.Name]
			if known && namesake(row.Name, base.Name) && !slices.Contains(variants, variant) {
				variants = append(variants, variant)
			}
		}
	}
	return variants
}

// namesake tells whether two rows are the same row in variants of different groups.
func namesake(a, b string) bool {
	nameA, _ := split(a)
	nameB, _ := split(b)
	return nameA == nameB && groupOf(a) != groupOf(b)
}

func (r *Report) ratioCell(name, base string) string {
	ratio, known := r.Ratios[name+"/"+base]
	switch {
	case name == base:
		return "1"
	case !known:
		return ""
	default:
		return fmt.Sprintf("%.2f", ratio)
	}
}

// softRatioCell is the cell with the ratio in Report.SoftRatios.
func (r *Report) softRatioCell(name, base string) string {
	ratio, known := r.SoftRatios[name+"/"+base]
	if !known {
		return ""
	}
	return fmt.Sprintf("%.2f", ratio.Median)
}

// lostCell is the cell with the share of packets that were lost.
func (row Row) lostCell() string {
	if row.Sent == 0 {
		return ""
	}
	var lost uint64
	for _, n := range row.Lost {
		lost += n
	}
	if lost == 0 {
		return "0"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(lost)/float64(row.Sent))
}

// cpus lists the CPUs whose use any row has.
func cpus(rows []Row) []int {
	seen := map[int]bool{}
	for _, row := range rows {
		for cpu := range row.Use {
			seen[cpu] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// ndrColumns are the columns of the table of no drop rates: a line for each frame length and a column for each row, with its spread
// if there is one.
func ndrColumns(rows []Row) []column {
	size := column{head: "bytes"}
	names, series := pivot(rows)
	for _, name := range names {
		size.add(name)
	}
	all := []column{size}
	for _, s := range series {
		c := column{head: s.name}
		for _, name := range names {
			c.add(ndrCell(s.rows[name]))
		}
		all = append(all, c)
	}
	return all
}

func ndrCell(row *Row) string {
	if row == nil {
		return "-"
	}
	cell := fmt.Sprintf("%.3f", row.NDR.Median)
	if row.NDR.Min != row.NDR.Max {
		cell += fmt.Sprintf(" (%.3f-%.3f)", row.NDR.Min, row.NDR.Max)
	}
	if !row.Valid {
		cell += " (invalid)"
	}
	return cell
}

// latencyColumns are the columns of the table of latencies, with a line for each row and load.
func latencyColumns(rows []Row) []column {
	all := []column{
		{head: "row", left: true}, {head: "load"}, {head: "offered Mpps"}, {head: "packets"},
		{head: "p50"}, {head: "p90"}, {head: "p99"}, {head: "p99.9"}, {head: "max"},
	}
	for _, row := range rows {
		for _, l := range row.Latency {
			for i, cell := range []string{
				row.label(), fmt.Sprintf("%.0f %%", 100*l.Load), fmt.Sprintf("%.3f", l.Offered), fmt.Sprint(l.Packets),
				micros(l.P50), micros(l.P90), micros(l.P99), micros(l.P999), micros(l.Max),
			} {
				all[i].add(cell)
			}
		}
	}
	return all
}

// micros writes nanoseconds as microseconds with about three significant digits.
func micros(ns float64) string {
	switch us := ns / 1000; {
	case us < 10:
		return fmt.Sprintf("%.2f", us)
	case us < 100:
		return fmt.Sprintf("%.1f", us)
	default:
		return fmt.Sprintf("%.0f", us)
	}
}

func figure(s *Spread, part func(Spread) float64, format string) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf(format, part(*s))
}

func number(v *float64, format string) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf(format, *v)
}

// writeNotes writes the notes of rows. Rows with the same note are on one line.
func (r *Report) writeNotes(b *strings.Builder) {
	var notes []string
	names := map[string][]string{}
	for _, row := range r.Rows {
		note := strings.Join(strings.Fields(row.Note), " ")
		if note == "" && !row.Valid {
			note = "invalid"
		}
		if note == "" {
			continue
		}
		if names[note] == nil {
			notes = append(notes, note)
		}
		names[note] = append(names[note], row.Name)
	}
	for _, note := range notes {
		fmt.Fprintf(b, "%s: %s\n", strings.Join(names[note], ", "), note)
	}
}
