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

// Tolerance is the share of its baseline by which a row may differ: 0.02 is 2 %. One instruction is always allowed.
const Tolerance = 0.02

// kernelRows are the rows in which hardly anything but Linux runs, as the lookups of cost/fib4 and cost/fib6. Their counts
// depend on how Linux happens to lay out its memory, so a higher one is a note and no fault.
var kernelRows = append([]string{
	"cost/fib4", "cost/fib6", "path/fib4", "path/fib6", "path/route-linux4", "path/route-linux6", "path/bridge", "path/forward",
}, lbrun.PeerRows()...)

// askingRows are the rows of programs that ask Linux for the route of each packet, with the row that has this question alone.
// By what that one has risen in the same run, in the same guest, theirs may rise as well.
var askingRows = map[string]string{
	"cost/route-fib4": "cost/fib4", "cost/route-fib6": "cost/fib6",
	"cost/route-multi-fib4": "cost/fib4", "cost/route-multi-fib6": "cost/fib6",
	"path/route-fib4": "path/fib4", "path/route-fib6": "path/fib6",
}

// Comparison is the result of comparing counts with a baseline.
type Comparison struct {
	// Notes are differences worth knowing. Faults are those that fail the comparison: more instructions than the tolerance
	// allows, a row without a baseline, or a baseline whose row is missing. Each is one line.
	Notes, Faults []string
}

// ReadBaseline reads a file that WriteBaseline has written.
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

// WriteBaseline writes counts to the file of that name. It replaces the file completely or, on an error, not at all.
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

// Compare compares counts with a baseline. Lines and rows of the baseline that are missing from counts are faults only if
// they are among the given lines and rows; an empty list stands for all.
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
		before, after := was.byName(), now.byName()
		kernels := map[string]float64{}
		for row, alone := range askingRows {
			if before[alone] > 0 {
				kernels[row] = max(after[alone]-before[alone], 0)
			}
		}
		for _, r := range now.named() {
			c.compare(now.Line, r.name, before[r.name], r.instructions, kernels[r.name])
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

// compare compares the instructions of one row, of which kernels are those by which the kernel's own part has risen. A row
// without a baseline has was 0.
func (c *Comparison) compare(line, row string, was, now, kernels float64) {
	if was == 0 {
		c.fault("Linux %s: %s takes %.2f instructions and has no baseline: write one with --write-baseline", line, row, now)
		return
	}
	rise := now - was
	change := fmt.Sprintf("Linux %s: %s takes %.2f instructions, by the baseline %.2f: %+.2f %%", line, row, now, was,
		100*rise/was)
	// What the guest's kernel does in between makes counts differ by fractions of an instruction. A program has whole ones.
	least := max(Tolerance*was, 1)
	switch {
	case rise > least && slices.Contains(kernelRows, row):
		c.note("%s: only the kernel runs in this row, and its count varies", change)
	case rise > least && rise-kernels <= least:
		c.note("%s: of that %.2f are the kernel's, by row %s", change, kernels, askingRows[row])
	case rise > least:
		c.fault("%s", change)
	case rise < -least:
		c.note("%s, so write a new baseline with --write-baseline", change)
	}
}

func (c *Comparison) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

func (c *Comparison) fault(format string, args ...any) {
	c.Faults = append(c.Faults, fmt.Sprintf(format, args...))
}

// Err returns one error that lists all faults, or nil if there are none.
func (c Comparison) Err() error {
	if len(c.Faults) == 0 {
		return nil
	}
	return fmt.Errorf("%d rows differ from the baseline by more than %.0f %%: %s", len(c.Faults), 100*Tolerance,
		strings.Join(c.Faults, "; "))
}

// find returns the counts of a line, or nil if there are none.
func find(all []Counts, line string) *Counts {
	for i := range all {
		if all[i].Line == line {
			return &all[i]
		}
	}
	return nil
}

// figure is the count of a row, under its name in insn.Rows.
type figure struct {
	name         string
	instructions float64
}

// named lists all rows that were counted.
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
