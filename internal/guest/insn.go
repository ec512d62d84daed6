// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"culvert/internal/bench"
	"culvert/internal/bench/report"
)

// InsnOptions says what CountInstructions does.
type InsnOptions struct {
	// Lines are lines of kernels, all of Lines if empty.
	Lines []string
	// Rows are names as bench.InsnRows has them, all if empty.
	Rows []string
	// Progress takes a line for each step.
	Progress io.Writer
}

// Counts are the instructions that packets take on one kernel.
type Counts struct {
	// Line is such as "6.1", Release what uname(1) says, Package the version of the Debian package.
	Line    string `json:"line"`
	Release string `json:"release"`
	Package string `json:"package"`
	bench.Instructions
}

// CountInstructions boots each kernel and counts in there.
func CountInstructions(ctx context.Context, o InsnOptions) ([]Counts, error) {
	if err := bench.CheckInsnRows(o.Rows); err != nil {
		return nil, err
	}
	kernels, err := findKernels(ctx, o.Lines, o.Progress)
	if err != nil {
		return nil, err
	}
	var all []Counts
	for _, k := range kernels {
		m := Machine{
			Kernel:   k,
			Job:      Job{Instructions: &bench.InsnOptions{Rows: o.Rows}},
			Memory:   2048,
			Limit:    15 * time.Minute,
			Progress: o.Progress,
			Output:   o.Progress,
		}
		a, err := m.Run(ctx)
		if err != nil {
			return nil, err
		}
		if a.Instructions == nil {
			return nil, fmt.Errorf("guest with Linux %s: it counted nothing", k)
		}
		all = append(all, Counts{Line: k.Line, Release: k.Release, Package: k.Package, Instructions: *a.Instructions})
	}
	return all, nil
}

// findKernels finds a kernel of each line, all lines if none is named.
func findKernels(ctx context.Context, lines []string, progress io.Writer) ([]Kernel, error) {
	if len(lines) == 0 {
		lines = Lines
	}
	var kernels []Kernel
	for _, line := range lines {
		k, err := FindKernel(ctx, line, progress)
		if err != nil {
			return nil, err
		}
		kernels = append(kernels, k)
	}
	return kernels, nil
}

// WriteJSON writes counts as JSON. A baseline is a file of it.
func WriteJSON(w io.Writer, all []Counts) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(all)
}

// WriteTable writes counts as a Markdown table, with a pair of columns for each kernel: the whole, and what is above
// the row that has no device in it.
func WriteTable(w io.Writer, all []Counts) error {
	var b strings.Builder
	for _, c := range all {
		fmt.Fprintf(&b, "Linux %s, Debian %s\n\n| row | instructions/packet | above direct |\n| --- | ---: | ---: |\n", c.Release,
			c.Package)
		for _, r := range c.Cost {
			fmt.Fprintf(&b, "| cost/%s | %.2f | |\n", r.Name, *r.Instructions)
		}
		base := direct(c.Path)
		for _, r := range c.Path {
			above := ""
			if base != nil && r.Name != base.Name {
				above = fmt.Sprintf("%.2f", *r.Instructions-*base.Instructions)
			}
			fmt.Fprintf(&b, "| path/%s | %.2f | %s |\n", r.Name, *r.Instructions, above)
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// direct finds the row without a device.
func direct(rows []report.Row) *report.Row {
	for i := range rows {
		if rows[i].Name == "direct" {
			return &rows[i]
		}
	}
	return nil
}
