// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"culvert/internal/bench/scenario/insn"
	"culvert/internal/bench/scenario/lbrun"
	"culvert/internal/show"
)

// ErrUnknown marks a line of kernels that Debian does not have.
var ErrUnknown = errors.New("unknown")

// InsnOptions says what Instructions does.
type InsnOptions struct {
	// Lines are lines of kernels, all of Lines if empty.
	Lines []string
	// Rows are names as insn.Rows has them, all if empty.
	Rows []string
	// Baseline, if not empty, is a file to compare with. WriteTo, if not empty, is one to write.
	Baseline, WriteTo string
	// JSON asks for JSON in place of a table.
	JSON bool
	// Progress takes a line for each step, and notes.
	Progress io.Writer
}

// Counts are the instructions that packets take on one kernel.
type Counts struct {
	// Line is such as "6.1", Release what uname(1) says, Package the version of the Debian package.
	Line    string `json:"line"`
	Release string `json:"release"`
	Package string `json:"package"`
	insn.Instructions
}

// Instructions counts on each kernel and writes what it has counted to w. It fails if that is more than a baseline
// allows.
func Instructions(ctx context.Context, o InsnOptions, w io.Writer) error {
	if err := insn.CheckRows(o.Rows); err != nil {
		return err
	}
	var baseline []Counts
	if o.Baseline != "" {
		var err error
		if baseline, err = ReadBaseline(o.Baseline); err != nil {
			return err
		}
	}
	all, err := countAll(ctx, o, baseline)
	if err != nil {
		return err
	}
	if o.JSON {
		err = WriteJSON(w, all)
	} else {
		err = WriteTable(w, all, baseline)
	}
	if err != nil {
		return err
	}
	if o.WriteTo != "" {
		return WriteBaseline(o.WriteTo, all)
	}
	if baseline == nil {
		return nil
	}
	c := Compare(baseline, all, o.Lines, o.Rows)
	for _, note := range c.Notes {
		fmt.Fprintln(o.Progress, note)
	}
	return c.Err()
}

// countAll boots each kernel and counts in there.
func countAll(ctx context.Context, o InsnOptions, baseline []Counts) ([]Counts, error) {
	kernels, err := findKernels(ctx, o.Lines, baseline, o.Progress)
	if err != nil {
		return nil, err
	}
	files, err := programFiles(lbrun.PeerPrograms(o.Rows))
	if err != nil {
		return nil, fmt.Errorf("%w: 'make deps-guest' installs it, or leave such rows out", err)
	}
	progress := &lines{to: o.Progress}
	all := make([]Counts, len(kernels))
	guests, ctx := errgroup.WithContext(ctx)
	// At the same time: each takes one CPU, and how fast that is changes no count.
	for i, k := range kernels {
		guests.Go(func() error {
			m := Machine{
				Kernel:   k,
				Job:      Job{Instructions: &insn.Options{Rows: o.Rows}},
				Files:    files,
				Memory:   2048,
				Limit:    insnLimit(o.Rows),
				Progress: progress,
				Output:   progress,
			}
			a, err := m.Run(ctx)
			if err != nil {
				return err
			}
			if a.Instructions == nil {
				return fmt.Errorf("guest with Linux %s: it counted nothing", k)
			}
			all[i] = Counts{Line: k.Line, Release: k.Release, Package: k.Package, Instructions: *a.Instructions}
			return nil
		})
	}
	if err := guests.Wait(); err != nil {
		return nil, err
	}
	return all, nil
}

// insnLimit is how long a guest may take for rows, all if there are none: much longer than on a machine with nothing else
// to do.
func insnLimit(rows []string) time.Duration {
	const boot, each = 20 * time.Minute, time.Minute
	n := len(rows)
	if n == 0 {
		n = len(insn.Rows())
	}
	return boot + time.Duration(n)*each
}

// lines lets several guests write to one place, a call at a time.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}

// findKernels finds a kernel of each line, all lines if none is named, and those preferred if possible.
func findKernels(ctx context.Context, lines []string, prefer []Counts, progress io.Writer) ([]Kernel, error) {
	if len(lines) == 0 {
		lines = Lines
	}
	for _, line := range lines {
		if !slices.Contains(Lines, line) {
			return nil, fmt.Errorf("%w line of kernels %q: there are %s", ErrUnknown, line, strings.Join(Lines, ", "))
		}
	}
	var kernels []Kernel
	for _, line := range lines {
		release := ""
		if p := find(prefer, line); p != nil {
			release = p.Release
		}
		k, err := FindKernel(ctx, line, release, progress)
		if err != nil {
			return nil, err
		}
		kernels = append(kernels, k)
	}
	return kernels, nil
}

// WriteJSON writes counts as JSON. A baseline is a file of it.
func WriteJSON(w io.Writer, all []Counts) error {
	return show.JSON(w, all)
}
