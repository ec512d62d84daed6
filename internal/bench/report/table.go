// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strings"
)

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

func (row Row) rateCells(ratios map[string]float64, bases []string) []string {
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

func (row Row) costCells() []string {
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
