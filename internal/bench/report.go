// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Report is the outcome of a scenario.
type Report struct {
	Scenario string      `json:"scenario"`
	Rows     []ReportRow `json:"rows"`
	// Ratios maps "A/B" to the median, over rounds, of A's rate by B's in the same round. Costs have none.
	Ratios  map[string]float64 `json:"ratios,omitempty"`
	Machine Machine            `json:"machine"`
}

// ReportRow is what was measured of one row, over all rounds.
type ReportRow struct {
	Name string `json:"name"`
	// Mpps is in millions of packets a second, absent where only a cost is measured.
	Mpps *Spread `json:"mpps,omitempty"`
	// Offered is the rate at which packets were sent, in the same unit.
	Offered *Spread `json:"offered_mpps,omitempty"`
	// NsPerPacket is in nanoseconds: the inverse of the rate, or the cost net of an empty program.
	NsPerPacket Spread `json:"ns_per_packet"`
	// Best is the lowest cost seen, net of the lowest of an empty program; absent where a rate is measured.
	Best *float64 `json:"best_ns_per_packet,omitempty"`
	// Frames is how many different frames took turns in a cost, 0 where a rate is measured.
	Frames   int               `json:"frames,omitempty"`
	Sent     uint64            `json:"sent,omitempty"`
	Received uint64            `json:"received,omitempty"`
	Lost     map[string]uint64 `json:"lost,omitempty"`
	// Valid is false if packets were lost that nothing counted. Note says so, or what is particular about the row.
	Valid bool   `json:"valid"`
	Note  string `json:"note,omitempty"`
}

// rateReport sums up samples of rows, and compares every row with those named in against.
func rateReport(scenario string, rows []Row, samples [][]Sample, against []string) *Report {
	r := &Report{Scenario: scenario, Ratios: map[string]float64{}}
	rates := map[string][]float64{}
	for i, row := range rows {
		out := ReportRow{Name: row.Name(), Lost: map[string]uint64{}, Valid: true}
		var mpps, offered, ns []float64
		var missing int64
		for _, s := range samples[i] {
			mpps = append(mpps, s.Mpps())
			offered = append(offered, s.Offered())
			if s.Mpps() > 0 {
				ns = append(ns, 1000/s.Mpps())
			}
			out.Sent += s.Sent
			out.Received += s.Received
			for where, n := range s.Lost {
				if n > 0 {
					out.Lost[where] += n
				}
			}
			out.Note = s.Note
			if !s.Accounted() {
				out.Valid = false
				missing += s.Missing()
			}
		}
		if !out.Valid {
			out.Note = fmt.Sprintf("invalid: %d packets not accounted for", missing)
		}
		arrived, sent := newSpread(mpps), newSpread(offered)
		out.Mpps, out.Offered, out.NsPerPacket = &arrived, &sent, newSpread(ns)
		rates[out.Name] = mpps
		r.Rows = append(r.Rows, out)
	}
	for _, base := range against {
		for name, mpps := range rates {
			if name != base && rates[base] != nil {
				r.Ratios[name+"/"+base] = pairedRatio(mpps, rates[base])
			}
		}
	}
	return r
}

// pairedRatio is the median ratio of values measured in the same round, 0 if there is none.
func pairedRatio(a, b []float64) float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return newSpread(ratios).Median
}

// costReport is the report of costs.
func costReport(scenario string, rows []CostRow) *Report {
	r := &Report{Scenario: scenario}
	for _, c := range rows {
		r.Rows = append(r.Rows, ReportRow{Name: c.Name, NsPerPacket: c.Net, Best: &c.Best, Frames: c.Frames, Valid: true})
	}
	return r
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteTable writes the report as a Markdown table that also reads well on a terminal, with its notes below.
func (r *Report) WriteTable(w io.Writer) error {
	head := []string{"row"}
	bases := r.bases()
	rates := len(r.Rows) > 0 && r.Rows[0].Mpps != nil
	if rates {
		head = append(head, "Mpps", "min", "max", "ns/packet")
		for _, b := range bases {
			head = append(head, "x "+b)
		}
		head = append(head, "offered", "lost")
	} else {
		head = append(head, "ns/packet", "min", "max", "best", "frames")
	}
	lines := [][]string{head}
	for _, row := range r.Rows {
		if rates {
			lines = append(lines, row.rateCells(r.Ratios, bases))
		} else {
			lines = append(lines, row.costCells())
		}
	}
	var b strings.Builder
	writeMarkdown(&b, lines)
	b.WriteString("\n")
	for _, row := range r.Rows {
		if row.Note != "" {
			fmt.Fprintf(&b, "%s: %s\n", row.Name, row.Note)
		}
	}
	fmt.Fprintf(&b, "%s\n", r.Machine)
	_, err := io.WriteString(w, b.String())
	return err
}

// bases lists the rows that others are compared with, in the order of the rows.
func (r *Report) bases() []string {
	var names []string
	for _, row := range r.Rows {
		for key := range r.Ratios {
			if strings.HasSuffix(key, "/"+row.Name) {
				names = append(names, row.Name)
				break
			}
		}
	}
	return names
}

func (row ReportRow) rateCells(ratios map[string]float64, bases []string) []string {
	cells := []string{
		row.Name,
		fmt.Sprintf("%.3f", row.Mpps.Median),
		fmt.Sprintf("%.3f", row.Mpps.Min),
		fmt.Sprintf("%.3f", row.Mpps.Max),
		fmt.Sprintf("%.0f", row.NsPerPacket.Median),
	}
	for _, b := range bases {
		if b == row.Name {
			cells = append(cells, "1")
			continue
		}
		cells = append(cells, fmt.Sprintf("%.2f", ratios[row.Name+"/"+b]))
	}
	var lost uint64
	for _, n := range row.Lost {
		lost += n
	}
	share := "0"
	if lost > 0 {
		share = fmt.Sprintf("%.2f %%", 100*float64(lost)/float64(row.Sent))
	}
	return append(cells, fmt.Sprintf("%.3f", row.Offered.Median), share)
}

func (row ReportRow) costCells() []string {
	return []string{
		row.Name,
		fmt.Sprintf("%.1f", row.NsPerPacket.Median),
		fmt.Sprintf("%.1f", row.NsPerPacket.Min),
		fmt.Sprintf("%.1f", row.NsPerPacket.Max),
		fmt.Sprintf("%.1f", *row.Best),
		fmt.Sprint(row.Frames),
	}
}

// writeMarkdown writes lines of cells, the first of them the head, with columns aligned: names to the left,
// figures to the right.
func writeMarkdown(b *strings.Builder, lines [][]string) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], len(cell), 2)
		}
	}
	for n, line := range lines {
		for i, cell := range line {
			if i == 0 {
				fmt.Fprintf(b, "| %-*s ", widths[i], cell)
			} else {
				fmt.Fprintf(b, "| %*s ", widths[i], cell)
			}
		}
		b.WriteString("|\n")
		if n > 0 {
			continue
		}
		for i, w := range widths {
			if i == 0 {
				fmt.Fprintf(b, "| %s ", strings.Repeat("-", w))
			} else {
				fmt.Fprintf(b, "| %s: ", strings.Repeat("-", w-1))
			}
		}
		b.WriteString("|\n")
	}
}
