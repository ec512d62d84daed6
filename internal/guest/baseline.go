// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario/lbrun"
)

// Tolerance is by which share a row may differ from its baseline.
const Tolerance = 0.02

// kernelRows run no program of ours: what they take depends on how Linux happens to lay out its memory.
var kernelRows = append([]string{"path/bridge", "path/forward"}, lbrun.PeerRows()...)

// Comparison is what counts are beside a baseline.
type Comparison struct {
	// Notes say what is worth to know, Faults what must not be: more instructions than the tolerance allows, a row
	// without a baseline, or a baseline whose row is gone. Each is one line.
	Notes, Faults []string
}

// ReadBaseline reads what WriteBaseline has written.
func ReadBaseline(name string) ([]Counts, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the baseline: %w", err)
	}
	var all []Counts
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("read the baseline %s: %w: write it again with --write-baseline", name, err)
	}
	return all, nil
}

// WriteBaseline replaces a baseline, completely or not at all.
func WriteBaseline(name string, all []Counts) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".baseline-")
	if err != nil {
		return fmt.Errorf("write the baseline: %w", err)
	}
	defer os.Remove(f.Name())
	err = WriteJSON(f, all)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("write the baseline: %w", err)
	}
	return nil
}

// Compare compares counts with a baseline. What was not asked for, because its line or its row is not among those
// given, is not missed; none given means all.
func Compare(baseline, counts []Counts, lines, rows []string) Comparison {
	var c Comparison
	for _, now := range counts {
		was := find(baseline, now.Line)
		if was == nil {
			c.fault("Linux %s has no baseline: write one with --write-baseline", now.Line)
			continue
		}
		if was.Package != now.Package {
			c.note("Linux %s is %s here, and was %s for the baseline: a difference may be the kernel's", now.Line, now.Package,
				was.Package)
		}
		before := was.byName()
		for _, r := range now.named() {
			c.compare(now.Line, r.name, before[r.name], r.instructions)
			delete(before, r.name)
		}
		for _, r := range was.named() {
			if _, left := before[r.name]; left && (len(rows) == 0 || slices.Contains(rows, r.name)) {
				c.fault("Linux %s: row %s of the baseline was not counted", now.Line, r.name)
			}
		}
	}
	for _, was := range baseline {
		if find(counts, was.Line) == nil && (len(lines) == 0 || slices.Contains(lines, was.Line)) {
			c.fault("Linux %s of the baseline was not counted", was.Line)
		}
	}
	return c
}

// compare compares one row; was is 0 if there is no baseline.
func (c *Comparison) compare(line, row string, was, now float64) {
	if was == 0 {
		c.fault("Linux %s: %s takes %.2f instructions and has no baseline: write one with --write-baseline", line, row, now)
		return
	}
	rise := now - was
	change := fmt.Sprintf("Linux %s: %s takes %.2f instructions, by the baseline %.2f: %+.2f %%", line, row, now, was,
		100*rise/was)
	switch {
	case rise > Tolerance*was && slices.Contains(kernelRows, row):
		c.note("%s: that is the kernel's alone, which counts otherwise now and then", change)
	case rise > Tolerance*was:
		c.fault("%s", change)
	case rise < -Tolerance*was:
		c.note("%s, so write a new baseline with --write-baseline", change)
	}
}

func (c *Comparison) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

func (c *Comparison) fault(format string, args ...any) {
	c.Faults = append(c.Faults, fmt.Sprintf(format, args...))
}

// Err is an error that lists the faults, nil if there are none.
func (c Comparison) Err() error {
	if len(c.Faults) == 0 {
		return nil
	}
	return fmt.Errorf("%d rows are not as the baseline has them, within %.0f %%: %s", len(c.Faults), 100*Tolerance,
		strings.Join(c.Faults, "; "))
}

// find finds the counts of a line.
func find(all []Counts, line string) *Counts {
	for i := range all {
		if all[i].Line == line {
			return &all[i]
		}
	}
	return nil
}

// figure is a row under the name that insn.Rows has for it.
type figure struct {
	name         string
	instructions float64
}

// named lists all rows.
func (c *Counts) named() []figure {
	var all []figure
	for _, part := range []struct {
		kind string
		rows []report.Row
	}{{"cost/", c.Cost}, {"path/", c.Path}} {
		for _, r := range part.rows {
			if r.Instructions != nil {
				all = append(all, figure{part.kind + r.Name, *r.Instructions})
			}
		}
	}
	return all
}

func (c *Counts) byName() map[string]float64 {
	all := map[string]float64{}
	for _, f := range c.named() {
		all[f.name] = f.instructions
	}
	return all
}
