// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"
	"unicode/utf8"
)

// table lines text up in columns.
type table struct {
	indent string
	// right tells which columns stand right-aligned: numbers.
	right []bool
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// lines returns a line for each row, without trailing blanks.
func (t *table) lines() []string {
	var widths []int
	for _, row := range t.rows {
		for n, cell := range row {
			if n == len(widths) {
				widths = append(widths, 0)
			}
			widths[n] = max(widths[n], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, 0, len(t.rows))
	for _, row := range t.rows {
		var b strings.Builder
		b.WriteString(t.indent)
		for n, cell := range row {
			if n > 0 {
				b.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[n]-utf8.RuneCountInString(cell))
			if n < len(t.right) && t.right[n] {
				b.WriteString(pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}
