// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strings"
	"unicode/utf8"
)

// Table aligns cells in columns.
type Table struct {
	// Indent is put in front of each line.
	Indent string
	// Right tells which columns are right-aligned. Columns beyond its end are not.
	Right []bool
	Rows  [][]string
}

// Add adds a row. Rows may have different numbers of cells.
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

// Wrap breaks a sentence between words into lines of at most width cells. A longer word has a line of its own.
func Wrap(sentence string, width int) (lines []string) {
	room := 0
	for word := range strings.FieldsSeq(sentence) {
		n := utf8.RuneCountInString(word)
		if len(lines) == 0 || n+1 > room {
			lines, room = append(lines, word), width-n
			continue
		}
		lines[len(lines)-1] += " " + word
		room -= n + 1
	}
	return lines
}
