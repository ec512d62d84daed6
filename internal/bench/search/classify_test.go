// SPDX-License-Identifier: Apache-2.0

package search

import (
	"testing"
	"time"
)

// The points in time and the goals of the example in RFC 9971, Appendix C, and what it says about them. At the last
// two points its table calls the load a lower bound for the last goal, although 42.857 % and 27.273 % are above the
// exceed ratio of 20 %; its own logic and pseudocode make that an upper bound, and so do we.
func TestClassifyAsInTheRFC(t *testing.T) {
	goals := []Goal{
		{FinalDuration: 60 * time.Second, DurationSum: 60 * time.Second},
		{FinalDuration: 60 * time.Second, DurationSum: 120 * time.Second, ExceedRatio: 0.5},
		{FinalDuration: time.Second, DurationSum: 120 * time.Second, LossRatio: 0.005, ExceedRatio: 0.5},
		{FinalDuration: 60 * time.Second, DurationSum: 60 * time.Second, LossRatio: 0.005, ExceedRatio: 0.2},
	}
	points := []struct {
		count    int
		duration time.Duration
		lost     uint64 // of 1000
		want     [4]class
	}{
		{59, time.Second, 0, [4]class{undecided, undecided, undecided, undecided}},
		{1, time.Second, 10, [4]class{upperBound, undecided, undecided, undecided}},
		{59, time.Second, 10, [4]class{upperBound, undecided, undecided, upperBound}},
		{1, time.Second, 0, [4]class{upperBound, undecided, lowerBound, upperBound}},
		{1, time.Minute, 1, [4]class{upperBound, undecided, lowerBound, upperBound}},
		{1, time.Minute, 0, [4]class{upperBound, lowerBound, lowerBound, upperBound}},
	}
	s := searcher{limits: Range{Shortfall: 0.01}}
	var trials []Trial
	for i, p := range points {
		for range p.count {
			trials = append(trials, Trial{1e6, p.duration, Result{1e6, 1000, p.lost}})
		}
		for j, g := range goals {
			if got := s.classify(g, trials); got != p.want[j] {
				t.Errorf("point %d, goal %d: class %d, want %d", i+1, j+1, got, p.want[j])
			}
		}
	}
}

func TestConditionalThroughput(t *testing.T) {
	g := Goal{FinalDuration: time.Second, DurationSum: 5 * time.Second, ExceedRatio: 0.5}
	trial := func(d time.Duration, lost uint64) Trial { return Trial{1000, d, Result{1000, 1000, lost}} }
	for _, tc := range []struct {
		name string
		lost []uint64
		want float64
	}{
		{"decided early", []uint64{0, 0, 0}, 1000},
		{"two disturbed", []uint64{100, 0, 900, 0, 0}, 1000},
		{"the third best counts", []uint64{300, 200, 100, 400, 500}, 700},
		{"not measured enough", []uint64{0, 0}, 0},
		{"nothing", nil, 0},
	} {
		trials := []Trial{trial(time.Second/2, 0), trial(time.Second/2, 0)}
		for _, lost := range tc.lost {
			trials = append(trials, trial(time.Second, lost))
		}
		if got := throughput(g, 1000, trials); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
