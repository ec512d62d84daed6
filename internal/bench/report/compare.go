// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// A change has to be significant by the rank test and at least minChange. The test alone is not enough: it knows how much the
// rounds of one run differ, but not how much two runs of the same code differ, for example by their layout in memory.
const (
	// alpha is the significance level of the Mann-Whitney test: the probability that a row without a change counts as changed.
	// It is small because a report has many rows.
	alpha = 0.01
	// minChange is the smallest change of a median, as a share.
	minChange = 0.02
	// minRounds is the smallest number of rounds in each report with which the test can reach alpha.
	minRounds = 5
	// otherSpeed is the change of a base's rate, as a share, beyond which the machine counts as having run at another speed.
	otherSpeed = 0.2
)

// Verdict is the outcome of the comparison of a figure.
type Verdict string

// All verdicts. Faster means better: a higher rate, a lower cost, fewer instructions.
const (
	Faster Verdict = "faster"
	Slower Verdict = "slower"
	// Same means that no change exceeds the noise.
	Same Verdict = "same"
	// Undecided means that the reports have too few measurements to decide.
	Undecided Verdict = "undecided"
	// Base marks the row that others are compared with. Its rate shows how fast the machine was.
	Base    Verdict = "base"
	New     Verdict = "new"
	Gone    Verdict = "gone"
	Invalid Verdict = "invalid"
)

// Change is the comparison of a figure of a row.
type Change struct {
	Row string `json:"row"`
	// Figure is the name of the figure, in words.
	Figure string `json:"figure,omitempty"`
	// Old and New are medians. They are nil if a report does not have the figure.
	Old *float64 `json:"old,omitempty"`
	New *float64 `json:"new,omitempty"`
	// Percent is the change from Old to New in percent.
	Percent *float64 `json:"change_percent,omitempty"`
	// P is the probability that rounds of the same code differ as much, by the Mann-Whitney test.
	P       *float64 `json:"p,omitempty"`
	Verdict Verdict  `json:"verdict"`
	Note    string   `json:"note,omitempty"`
}

// Comparison is the comparison of two reports.
type Comparison struct {
	Scenario string   `json:"scenario"`
	Changes  []Change `json:"changes"`
	// Warnings are other differences between the reports, such as another machine.
	Warnings []string `json:"warnings,omitempty"`
}

// Compare finds the changes that exceed the noise. Rows are matched by name. Rates are compared as ratios to a base row, so that
// the speed of the machine cancels out. The base is the row named in base, or the first of usualBases that both reports have.
// Costs are compared as ratios to the empty program of the same round. Figures that were not measured in rounds are compared
// directly. If base names a row that is not in both reports the error is ErrNoBase.
func Compare(before, after *Report, base string) (*Comparison, error) {
	if before.Scenario != after.Scenario {
		return nil, fmt.Errorf("the reports are of different scenarios, %s and %s: compare two of the same", before.Scenario,
			after.Scenario)
	}
	if base != "" && (before.row(base) == nil || after.row(base) == nil) {
		return nil, fmt.Errorf("%w: there is no row %q in both reports", ErrNoBase, base)
	}
	c := &comparer{before: before, after: after, base: base}
	c.out = &Comparison{Scenario: before.Scenario}
	c.warnMachine()
	for _, row := range after.Rows {
		old := before.row(row.Name)
		switch {
		case old == nil:
			c.add(Change{Row: row.Name, Verdict: New})
		case !old.Valid || !row.Valid:
			c.add(Change{Row: row.Name, Verdict: Invalid, Note: "in " + which(!old.Valid, !row.Valid)})
		case old.FrameSize != row.FrameSize:
			c.add(Change{
				Row: row.Name, Verdict: Undecided,
				Note: fmt.Sprintf("frames of %s bytes and of %s", old.sizeName(), row.sizeName()),
			})
		default:
			c.compare(old, &row)
		}
	}
	for _, row := range before.Rows {
		if after.row(row.Name) == nil {
			c.add(Change{Row: row.Name, Verdict: Gone})
		}
	}
	return c.out, nil
}

// ErrNoBase marks a base that is not in both reports.
var ErrNoBase = errors.New("no base")

func which(old, now bool) string {
	switch {
	case old && now:
		return "both reports"
	case old:
		return "the old report"
	default:
		return "the new report"
	}
}

func (r *Report) row(name string) *Row {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Rows[i]
}

// comparer collects changes.
type comparer struct {
	before, after *Report
	base          string
	otherMachine  bool
	out           *Comparison
}

func (c *comparer) add(change Change) { c.out.Changes = append(c.out.Changes, change) }

func (c *comparer) warn(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(c.out.Warnings, line) {
		c.out.Warnings = append(c.out.Warnings, line)
	}
}

func (c *comparer) warnMachine() {
	a, b := c.before.Machine, c.after.Machine
	if a.CPU != b.CPU || a.CPUs != b.CPUs {
		c.otherMachine = true
		c.warn("other machine: %d CPUs (%s), now %d CPUs (%s): only ratios can be compared, and they differ between machines",
			a.CPUs, a.CPU, b.CPUs, b.CPU)
	}
	if a.Kernel != b.Kernel {
		c.warn("other kernel: Linux %s, now Linux %s: what changed may be the kernel's doing", a.Kernel, b.Kernel)
	}
}

// compare compares all figures of a row that is valid in both reports.
func (c *comparer) compare(old, now *Row) {
	count := len(c.out.Changes)
	for _, m := range measures {
		if m.spread(old) != nil && m.spread(now) != nil {
			c.measured(m, old, now)
		}
	}
	if old.Instructions != nil && now.Instructions != nil {
		c.exact("instructions", *old.Instructions, *now.Instructions, old.Name)
	}
	for _, a := range old.Latency {
		for _, b := range now.Latency {
			if a.Load == b.Load {
				c.latency(old.Name, a, b)
			}
		}
	}
	if len(c.out.Changes) == count {
		c.add(Change{Row: old.Name, Verdict: Undecided, Note: "no figure is in both reports"})
	}
}

// exact compares figures without noise: any difference is a change.
func (c *comparer) exact(figure string, old, now float64, row string) {
	change := changeOf(row, figure, old, now)
	switch {
	case now < old:
		change.Verdict = Faster
	case now > old:
		change.Verdict = Slower
	default:
		change.Verdict = Same
	}
	c.add(change)
}

// latency adds percentiles without a verdict. Each was measured once, so their noise is not known.
func (c *comparer) latency(row string, old, now Latency) {
	for _, p := range []struct {
		name     string
		old, now float64
	}{{"p50", old.P50, now.P50}, {"p99", old.P99, now.P99}} {
		change := changeOf(row, fmt.Sprintf("%s ns at %.0f %%", p.name, 100*old.Load), p.old, p.now)
		change.Verdict, change.Note = Undecided, "percentiles are measured once, their noise is not known"
		c.add(change)
	}
}

// changeOf makes a change without a verdict.
func changeOf(row, figure string, old, now float64) Change {
	c := Change{Row: row, Figure: figure, Old: &old, New: &now}
	if old > 0 {
		percent := 100 * (now/old - 1)
		c.Percent = &percent
	}
	return c
}

// judge sets the verdict by the rounds of both reports, which it does not modify.
func (change *Change) judge(old, now []float64, lowerIsBetter bool) {
	if len(old) < minRounds || len(now) < minRounds {
		change.Verdict = Undecided
		change.Note = fmt.Sprintf("%d and %d rounds, at least %d are needed", len(old), len(now), minRounds)
		return
	}
	thresholds := &benchmath.Thresholds{CompareAlpha: alpha}
	// NewSample sorts its argument.
	test := benchmath.AssumeNothing.Compare(benchmath.NewSample(slices.Clone(old), thresholds),
		benchmath.NewSample(slices.Clone(now), thresholds))
	change.P = &test.P
	change.decide(test.P < alpha, lowerIsBetter)
}

// decide sets the verdict. significant tells whether the change exceeds the differences between rounds.
func (change *Change) decide(significant, lowerIsBetter bool) {
	switch {
	case change.Percent == nil:
		change.Verdict, change.Note = Undecided, "the old figure is not above zero"
	case !significant || math.Abs(*change.Percent) < 100*minChange:
		change.Verdict = Same
	case (*change.Percent < 0) == lowerIsBetter:
		change.Verdict = Faster
	default:
		change.Verdict = Slower
	}
}
