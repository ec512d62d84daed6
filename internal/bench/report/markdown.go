// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"unicode/utf8"
)

// column is a column of a table.
type column struct {
	head string
	// left aligns cells to the left. Figures are aligned to the right.
	left bool
	// cells are the cells below the head, one for each row.
	cells []string
}

// add appends a cell.
func (c *column) add(cell string) { c.cells = append(c.cells, cell) }

// empty tells whether no row has anything in the column.
func (c *column) empty() bool { return strings.Join(c.cells, "") == "" }

// writeMarkdown writes columns as a Markdown table that is aligned for a terminal. Empty columns are left out.
func writeMarkdown(b *strings.Builder, columns []column) {
	var kept []column
	var widths []int
	for _, c := range columns {
		if c.empty() {
			continue
		}
		width := max(utf8.RuneCountInString(c.head), 2)
		for _, cell := range c.cells {
			width = max(width, utf8.RuneCountInString(cell))
		}
		kept, widths = append(kept, c), append(widths, width)
	}
	if len(kept) == 0 {
		return
	}
	for i, c := range kept {
		writeCell(b, c.head, widths[i], c.left)
	}
	b.WriteString("|\n")
	for i, c := range kept {
		if c.left {
			b.WriteString("| " + strings.Repeat("-", widths[i]) + " ")
		} else {
			b.WriteString("| " + strings.Repeat("-", widths[i]-1) + ": ")
		}
	}
	b.WriteString("|\n")
	for line := range kept[0].cells {
		for i, c := range kept {
			writeCell(b, c.cells[line], widths[i], c.left)
		}
		b.WriteString("|\n")
	}
}

// writeCell writes one cell. It replaces vertical bars in it, which would end the cell.
func writeCell(b *strings.Builder, cell string, width int, left bool) {
	padding := strings.Repeat(" ", width-utf8.RuneCountInString(cell))
	cell = strings.ReplaceAll(cell, "|", "/")
	if left {
		b.WriteString("| " + cell + padding + " ")
	} else {
		b.WriteString("| " + padding + cell + " ")
	}
}
