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

// ErrUnknown marks a line of kernels that is not in Lines.
var ErrUnknown = errors.New("unknown")

// InsnOptions are the options of Instructions.
type InsnOptions struct {
	// Arch is the architecture, such as "arm64". Empty stands for this machine's.
	Arch string
	// Lines are lines of kernels, such as "6.1". Empty stands for all.
	Lines []string
	// Rows are patterns of insn.Match. Empty stands for all.
	Rows []string
	// Baseline, if not empty, is the file to compare with. WriteTo, if not empty, is the file to write the counts to.
	Baseline, WriteTo string
	// JSON selects JSON instead of a table.
	JSON bool
	// Progress receives a line for each step, and the notes of the comparison.
	Progress io.Writer
}

// Counts are the instructions that packets take on one kernel.
type Counts struct {
	// Line is the line of the kernel, such as "6.1". Release is what 'uname -r' prints. Package is the version of the Debian
	// package.
	Line    string `json:"line"`
	Release string `json:"release"`
	Package string `json:"package"`
	insn.Instructions
}

// Instructions counts instructions per packet on each kernel and writes the counts to w. It fails if they differ from the
// baseline by more than Tolerance.
func Instructions(ctx context.Context, o InsnOptions, w io.Writer) error {
	var err error
	if o.Rows, err = insn.Match(o.Rows); err != nil {
		return err
	}
	var baseline []Counts
	if o.Baseline != "" {
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
	arch, err := ParseArch(o.Arch)
	if err != nil {
		return nil, err
	}
	kernels, err := findKernels(ctx, arch, o.Lines, Cloud, baseline, o.Progress)
	if err != nil {
		return nil, err
	}
	files, err := arch.programFiles(ctx, lbrun.PeerPrograms(o.Rows))
	if err != nil {
		return nil, fmt.Errorf("%w: install it with 'make deps-guest', or leave out the rows that need it", err)
	}
	progress := &syncWriter{to: o.Progress}
	all := make([]Counts, len(kernels))
	guests, ctx := errgroup.WithContext(ctx)
	// Guests run in parallel: each uses one CPU, and its speed changes no count.
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

// insnLimit bounds the time that a guest takes to count rows; no rows stand for all. It is long enough for a busy machine.
func insnLimit(rows []string) time.Duration {
	const boot, each = 20 * time.Minute, time.Minute
	n := len(rows)
	if n == 0 {
		n = len(insn.Rows())
	}
	return boot + time.Duration(n)*each
}

// syncWriter lets several guests write to one writer, a call at a time.
type syncWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *syncWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}

// findKernels finds a kernel of the flavor for each line; no lines stand for all. It takes the releases in prefer as far as they exist.
func findKernels(ctx context.Context, arch Arch, lines []string, flavor Flavor, prefer []Counts, progress io.Writer) ([]Kernel, error) {
	if len(lines) == 0 {
		lines = Lines
	}
	for _, line := range lines {
		if !slices.Contains(Lines, line) && !slices.Contains(OldLines, line) {
			return nil, fmt.Errorf("%w line of kernels %q: there are %s", ErrUnknown, line, strings.Join(Lines, ", "))
		}
	}
	if _, err := arch.self(); err != nil { // sooner than after a download
		return nil, err
	}
	var kernels []Kernel
	for _, line := range lines {
		release := ""
		if p := find(prefer, line); p != nil {
			release = p.Release
		}
		k, err := FindKernel(ctx, arch, line, flavor, release, progress)
		if err != nil {
			return nil, err
		}
		kernels = append(kernels, k)
	}
	return kernels, nil
}

// WriteJSON writes counts as JSON, which is also the format of baseline files.
func WriteJSON(w io.Writer, all []Counts) error {
	return show.JSON(w, all)
}
