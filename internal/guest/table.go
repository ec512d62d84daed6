// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"fmt"
	"io"
	"strings"

	"culvert/internal/bench/scenario/insn"
)

// WriteTable writes counts as a Markdown table. Each kernel has columns for the count, for the difference to the row without
// a device (only for rows end to end), and for the change since the baseline, if there is one.
func WriteTable(w io.Writer, all, baseline []Counts) error {
	lines := [][]string{{"instructions/packet"}, {"---"}}
	for _, c := range all {
		lines[0] = append(lines[0], c.Line, "above direct")
		lines[1] = append(lines[1], "---:", "---:")
		if baseline != nil {
			lines[0] = append(lines[0], "change")
			lines[1] = append(lines[1], "---:")
		}
	}
	for _, name := range insn.Rows() {
		cells, counted := []string{name}, false
		for _, c := range all {
			rows := c.byName()
			now, direct := rows[name], rows["path/direct"]
			whole, above := "", ""
			if now != 0 {
				counted = true
				whole = fmt.Sprintf("%.2f", now)
			}
			if insn.Whole(name) && name != "path/direct" && now != 0 && direct != 0 {
				above = fmt.Sprintf("%.2f", now-direct)
			}
			cells = append(cells, whole, above)
			if baseline != nil {
				cells = append(cells, changeCell(find(baseline, c.Line), name, now))
			}
		}
		if counted {
			lines = append(lines, cells)
		}
	}
	var b strings.Builder
	writeAligned(&b, lines)
	b.WriteString("\n")
	for _, c := range all {
		fmt.Fprintf(&b, "%s: Linux %s, Debian's package %s\n", c.Line, c.Release, c.Package)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func changeCell(was *Counts, name string, now float64) string {
	if was == nil || now == 0 || was.byName()[name] == 0 {
		return ""
	}
	return fmt.Sprintf("%+.2f %%", 100*(now/was.byName()[name]-1))
}

// writeAligned writes a Markdown table with aligned columns: names to the left, figures to the right. lines[1] is the
// delimiter row, whose cells it replaces.
func writeAligned(b *strings.Builder, lines [][]string) {
	widths := make([]int, len(lines[0]))
	for _, cells := range lines {
		for i, cell := range cells {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for n, cells := range lines {
		for i, cell := range cells {
			switch {
			case n == 1:
				rule := strings.Repeat("-", widths[i]-1)
				if i == 0 {
					cell = rule + "-"
				} else {
					cell = rule + ":"
				}
				fmt.Fprintf(b, "| %s ", cell)
			case i == 0:
				fmt.Fprintf(b, "| %-*s ", widths[i], cell)
			default:
				fmt.Fprintf(b, "| %*s ", widths[i], cell)
			}
		}
		b.WriteString("|\n")
	}
}
