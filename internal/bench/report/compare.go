// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// A change counts only if both hold. The rank test alone is not enough: it knows how much the rounds of a run differ,
// but not how much a run differs from the next one of the same code, for example by where it lies in memory.
const (
	// alpha is how often the test of Mann and Whitney may call a row changed that is not. A report has many rows.
	alpha = 0.01
	// leastChange is the smallest share by which a median has to move.
	leastChange = 0.02
	// leastRounds is how many rounds each report needs for the test to be able to reach alpha at all.
	leastRounds = 5
	// otherSpeed is from which change of its base's own rate on the machine is said to have run at another speed.
	otherSpeed = 0.2
)

// Verdict says what became of a figure.
type Verdict string

// All verdicts. Faster is what is better: a higher rate, a lower cost, fewer instructions.
const (
	Faster Verdict = "faster"
	Slower Verdict = "slower"
	// Same means that nothing changed beyond noise.
	Same Verdict = "same"
	// Undecided means that the reports do not hold what it takes to tell.
	Undecided Verdict = "undecided"
	// Base marks the row that others are compared with: its rate shows how fast the machine was.
	Base    Verdict = "base"
	New     Verdict = "new"
	Gone    Verdict = "gone"
	Invalid Verdict = "invalid"
)

// Change is what became of a figure of a row.
type Change struct {
	Row string `json:"row"`
	// Figure is the name of what is compared, in words.
	Figure string `json:"figure,omitempty"`
	// Old and New are medians, absent in reports that do not have the figure.
	Old *float64 `json:"old,omitempty"`
	New *float64 `json:"new,omitempty"`
	// Percent is how much larger New is than Old.
	Percent *float64 `json:"change_percent,omitempty"`
	// P is the probability that rounds of the same code differ as much, by the test of Mann and Whitney.
	P       *float64 `json:"p,omitempty"`
	Verdict Verdict  `json:"verdict"`
	Note    string   `json:"note,omitempty"`
}

// Comparison is what changed from one report to another.
type Comparison struct {
	Scenario string   `json:"scenario"`
	Changes  []Change `json:"changes"`
	// Warnings say what else differs between the reports.
	Warnings []string `json:"warnings,omitempty"`
}

// Compare says what changed beyond noise. Rows are matched by name. Rates are compared as ratios to a row that both
// reports have and that is a peer, not culvert, so that the speed of the machine cancels out: redirect, direct, bridge
// or reference, the first of them that is there, or the one named in base. Costs are compared as ratios to the empty
// program of the same round. Figures that were not measured in rounds are compared as they are.
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

// ErrNoBase marks that reports do not have the row that they are to be compared by.
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

// exact compares figures that do not wobble: any difference is a change.
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

// latency shows percentiles of two runs. Each was measured once, so nothing tells how much it wobbles.
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

// changeOf fills in all but the verdict.
func changeOf(row, figure string, old, now float64) Change {
	c := Change{Row: row, Figure: figure, Old: &old, New: &now}
	if old > 0 {
		percent := 100 * (now/old - 1)
		c.Percent = &percent
	}
	return c
}

// judge decides by the rounds of both reports. It keeps their order.
func (change *Change) judge(old, now []float64, lowerIsBetter bool) {
	if len(old) < leastRounds || len(now) < leastRounds {
		change.Verdict = Undecided
		change.Note = fmt.Sprintf("%d and %d rounds, at least %d are needed", len(old), len(now), leastRounds)
		return
	}
	thresholds := &benchmath.Thresholds{CompareAlpha: alpha}
	// NewSample sorts what it is given.
	test := benchmath.AssumeNothing.Compare(benchmath.NewSample(slices.Clone(old), thresholds),
		benchmath.NewSample(slices.Clone(now), thresholds))
	change.P = &test.P
	change.decide(test.P < alpha, lowerIsBetter)
}

// decide gives the verdict on a change that is, or is not, beyond what rounds differ by.
func (change *Change) decide(beyond, lowerIsBetter bool) {
	switch {
	case change.Percent == nil:
		change.Verdict, change.Note = Undecided, "the old figure is not above zero"
	case !beyond || math.Abs(*change.Percent) < 100*leastChange:
		change.Verdict = Same
	case (*change.Percent < 0) == lowerIsBetter:
		change.Verdict = Faster
	default:
		change.Verdict = Slower
	}
}
