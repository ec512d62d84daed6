// SPDX-License-Identifier: Apache-2.0

package search

import (
	"cmp"
	"slices"
	"time"
)

// class is what the trials at a load say about it (RFC 9971, 4.7.2).
type class int

const (
	undecided class = iota
	lowerBound
	upperBound
)

// failed tells whether a trial was outside the goal: it lost too much, or the load was not offered.
func (s *searcher) failed(g Goal, t Trial) bool {
	return t.lossRatio() > g.LossRatio || s.short(t)
}

// short tells whether the generator could not offer the load.
func (s *searcher) short(t Trial) bool {
	return t.Offered < t.Load*(1-s.limits.Shortfall)
}

// classify applies RFC 9971, 6.1: a load is decided once nothing that the time left until the sum of durations could
// bring would change it. A short trial without loss proves nothing, because a queue may have hidden the loss; it only
// makes up for short trials with loss. Those count against the load.
func (s *searcher) classify(g Goal, trials []Trial) class {
	var fullGood, fullBad, shortGood, shortBad time.Duration
	for _, t := range trials {
		full, failed := t.Duration >= g.FinalDuration, s.failed(g, t)
		switch {
		case full && failed:
			fullBad += t.Duration
		case full:
			fullGood += t.Duration
		case failed:
			shortBad += t.Duration
		default:
			shortGood += t.Duration
		}
	}
	// In nanoseconds, which are whole numbers: sums are exact.
	made := float64(shortGood) * g.ExceedRatio / (1 - g.ExceedRatio)
	bad := float64(fullBad) + max(0, float64(shortBad)-made)
	whole := max(bad+float64(fullGood), float64(g.DurationSum))
	allowed := whole * g.ExceedRatio
	switch {
	case bad > allowed:
		return upperBound
	case whole-float64(fullGood) <= allowed:
		return lowerBound
	default:
		return undecided
	}
}

// throughput is the conditional throughput of a load, RFC 9971, 6.2: the forwarding rate that the share of the time
// given by the exceed ratio was at least at.
func throughput(g Goal, load float64, trials []Trial) float64 {
	full := slices.DeleteFunc(slices.Clone(trials), func(t Trial) bool { return t.Duration < g.FinalDuration })
	slices.SortFunc(full, func(a, b Trial) int { return cmp.Compare(a.lossRatio(), b.lossRatio()) })
	var sum time.Duration
	for _, t := range full {
		sum += t.Duration
	}
	left := float64(max(sum, g.DurationSum)) * (1 - g.ExceedRatio)
	for _, t := range full {
		if left -= float64(t.Duration); left <= 0 {
			return load * (1 - t.lossRatio())
		}
	}
	// What was not measured counts as lost.
	return 0
}

// bounds finds the relevant bounds (RFC 9971, 4.8.1 and 4.8.2). An upper bound below a lower one is the one that
// counts.
func (s *searcher) bounds(g Goal) (lower, upper float64) {
	classes := map[float64]class{}
	for load, trials := range s.trials {
		classes[load] = s.classify(g, trials)
		if classes[load] == upperBound && (upper == 0 || load < upper) {
			upper = load
		}
	}
	for load, c := range classes {
		if c == lowerBound && load > lower && (upper == 0 || load < upper) {
			lower = load
		}
	}
	return lower, upper
}

// limit tells what made a load an upper bound: the generator, if more trials fell short of it than lost too much.
func (s *searcher) limit(g Goal, load float64) Limit {
	if load == 0 {
		return NoLimit
	}
	lossy, short := 0, 0
	for _, t := range s.trials[load] {
		switch {
		case t.lossRatio() > g.LossRatio:
			lossy++
		case s.short(t):
			short++
		}
	}
	if short > lossy {
		return GeneratorLimit
	}
	return DeviceLimit
}
