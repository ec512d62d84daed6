// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strings"

	"culvert/internal/show"
)

// WriteJSON writes the comparison as one JSON object.
func (c *Comparison) WriteJSON(w io.Writer) error {
	return show.JSON(w, c)
}

// WriteTable writes the comparison as a Markdown table, warnings first.
func (c *Comparison) WriteTable(w io.Writer) error {
	var b strings.Builder
	for _, line := range c.Warnings {
		b.WriteString(line + "\n")
	}
	if len(c.Warnings) > 0 {
		b.WriteByte('\n')
	}
	columns := []column{
		{head: "row", left: true}, {head: "figure", left: true}, {head: "old"}, {head: "new"}, {head: "change"}, {head: "p"},
		{head: "verdict", left: true}, {head: "why", left: true},
	}
	for _, change := range c.Changes {
		for i, cell := range change.cells() {
			columns[i].add(cell)
		}
	}
	writeMarkdown(&b, columns)
	fmt.Fprintf(&b, "\n%s\n", c.summary())
	_, err := io.WriteString(w, b.String())
	return err
}

func (change Change) cells() []string {
	percent, p := "", ""
	if change.Percent != nil {
		percent = fmt.Sprintf("%+.1f %%", *change.Percent)
	}
	if change.P != nil {
		p = fmt.Sprintf("%.3f", *change.P)
	}
	return []string{
		change.Row, change.Figure, significant(change.Old), significant(change.New), percent, p, string(change.Verdict),
		change.Note,
	}
}

// significant writes a figure with the digits that a comparison needs.
func significant(v *float64) string {
	switch {
	case v == nil:
		return ""
	case *v >= 1000 || *v <= -1000:
		return fmt.Sprintf("%.0f", *v)
	case *v >= 100 || *v <= -100:
		return fmt.Sprintf("%.1f", *v)
	default:
		return fmt.Sprintf("%.3f", *v)
	}
}

// summary counts the verdicts.
func (c *Comparison) summary() string {
	var parts []string
	for _, v := range []Verdict{Faster, Slower, Same, Undecided, New, Gone, Invalid} {
		n := 0
		for _, change := range c.Changes {
			if change.Verdict == v {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	return c.Scenario + ": " + strings.Join(parts, ", ")
}
