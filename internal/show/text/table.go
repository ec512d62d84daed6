// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strings"
	"unicode/utf8"
)

// Table lines up cells in columns.
type Table struct {
	Indent string
	// Right tells which columns stand right-aligned: numbers.
	Right []bool
	Rows  [][]string
}

// Add adds a row; rows may have different numbers of cells.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Lines returns a line for each row, without trailing blanks.
func (t *Table) Lines() []string {
	var widths []int
	for _, row := range t.Rows {
		for n, cell := range row {
			if n == len(widths) {
				widths = append(widths, 0)
			}
			widths[n] = max(widths[n], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, 0, len(t.Rows))
	for _, row := range t.Rows {
		var b strings.Builder
		b.WriteString(t.Indent)
		for n, cell := range row {
			if n > 0 {
				b.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[n]-utf8.RuneCountInString(cell))
			if n < len(t.Right) && t.Right[n] {
				b.WriteString(pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}
