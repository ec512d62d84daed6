// SPDX-License-Identifier: Apache-2.0

package search

import (
	"cmp"
	"slices"
	"time"
)

// class is the classification of a load by its trials (RFC 9971, Load Classification).
type class int

const (
	undecided class = iota
	lowerBound
	upperBound
)

// failed tells whether a trial missed the goal: it lost too much, or the load was not offered.
func (s *searcher) failed(g Goal, t Trial) bool {
	return t.lossRatio() > g.LossRatio || s.short(t)
}

// short tells whether the generator could not offer the load.
func (s *searcher) short(t Trial) bool {
	return t.Offered < t.Load*(1-s.limits.Shortfall)
}

// classify applies the Load Classification Logic of RFC 9971. A load is decided once no outcome of the remaining trials, up to
// the sum of durations, could change its class. A short trial with loss counts against the load. A short trial without loss
// does not count for it, because a queue may have hidden the loss; it only offsets short trials with loss.
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
	// Durations are whole nanoseconds, so their sums are exact.
	offset := float64(shortGood) * g.ExceedRatio / (1 - g.ExceedRatio)
	bad := float64(fullBad) + max(0, float64(shortBad)-offset)
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

// forwarded is the forwarding rate, in packets a second. It is computed from the rate that was really offered, but at most
// from the load.
func (t Trial) forwarded() float64 { return min(t.Offered, t.Load) * (1 - t.lossRatio()) }

// throughput is the conditional throughput of a load (RFC 9971, Conditional Throughput Logic), in packets a second: trials of
// full length had at least this forwarding rate, except for a share of their time that is the exceed ratio. Unlike in the
// RFC it depends on the rate that was really offered, so that a generator that falls short of the load does not raise it.
func throughput(g Goal, trials []Trial) float64 {
	full := slices.DeleteFunc(slices.Clone(trials), func(t Trial) bool { return t.Duration < g.FinalDuration })
	slices.SortFunc(full, func(a, b Trial) int { return cmp.Compare(b.forwarded(), a.forwarded()) })
	var sum time.Duration
	for _, t := range full {
		sum += t.Duration
	}
	left := float64(max(sum, g.DurationSum)) * (1 - g.ExceedRatio)
	for _, t := range full {
		if left -= float64(t.Duration); left <= 0 {
			return t.forwarded()
		}
	}
	// Time that was not measured counts as time without a packet forwarded.
	return 0
}

// bounds finds the relevant bounds (RFC 9971, Result Terms), 0 where there is none. Lower bounds above an upper bound do not
// count.
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

// limit tells what made a load an upper bound. It is the generator if more trials fell short of the load than lost too much.
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
