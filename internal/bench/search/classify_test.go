// SPDX-License-Identifier: Apache-2.0

package search

import (
	"testing"
	"time"
)

// These are the points in time and the goals of the Example Search of RFC 9971, with its classes. At the last two points the
// table of the RFC calls the load a lower bound for the last goal, although 42.857 % and 27.273 % are above the exceed ratio
// of 20 %. The RFC's logic and pseudocode make it an upper bound, and so does this package.
func TestClassifyExampleOfTheRFC(t *testing.T) {
	goals := []Goal{
		{FinalDuration: 60 * time.Second, DurationSum: 60 * time.Second},
		{FinalDuration: 60 * time.Second, DurationSum: 120 * time.Second, ExceedRatio: 0.5},
		{FinalDuration: time.Second, DurationSum: 120 * time.Second, LossRatio: 0.005, ExceedRatio: 0.5},
		{FinalDuration: 60 * time.Second, DurationSum: 60 * time.Second, LossRatio: 0.005, ExceedRatio: 0.2},
	}
	// Each point adds trials to those of the points before.
	points := []struct {
		name     string
		count    int
		duration time.Duration
		lost     uint64 // of 1000
		want     [4]class
	}{
		{"59 short trials without loss", 59, time.Second, 0, [4]class{undecided, undecided, undecided, undecided}},
		{"a short trial with loss", 1, time.Second, 10, [4]class{upperBound, undecided, undecided, undecided}},
		{"59 short trials with loss", 59, time.Second, 10, [4]class{upperBound, undecided, undecided, upperBound}},
		{"a short trial without loss", 1, time.Second, 0, [4]class{upperBound, undecided, lowerBound, upperBound}},
		{"a full trial with loss", 1, time.Minute, 1, [4]class{upperBound, undecided, lowerBound, upperBound}},
		{"a full trial without loss", 1, time.Minute, 0, [4]class{upperBound, lowerBound, lowerBound, upperBound}},
	}
	s := searcher{limits: Range{Shortfall: 0.01}}
	var trials []Trial
	for _, p := range points {
		for range p.count {
			trials = append(trials, Trial{1e6, p.duration, Result{1e6, 1000, p.lost}})
		}
		var got [4]class
		for j, g := range goals {
			got[j] = s.classify(g, trials)
		}
		if got != p.want {
			t.Errorf("after %s: classes %v for the four goals, want %v", p.name, got, p.want)
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
		if got := throughput(g, trials); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// A generator that falls short of the load does not raise the throughput: the rate that it really offered counts.
func TestThroughputOfAShortGenerator(t *testing.T) {
	g := Goal{FinalDuration: time.Second, DurationSum: time.Second, ExceedRatio: 0.5}
	trials := []Trial{{1000, time.Second, Result{900, 900, 90}}}
	if got := throughput(g, trials); got != 810 {
		t.Errorf("%v, want 810", got)
	}
	// A generator that offers a little more does not raise it either.
	trials[0].Offered = 1010
	if got := throughput(g, trials); got != 900 {
		t.Errorf("%v, want 900", got)
	}
}
