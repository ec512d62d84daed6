// SPDX-License-Identifier: Apache-2.0

// Package search finds the highest load that a device takes within a goal for its losses, after RFC 2544, 26.1, and
// RFC 9971 (Multiple Loss Ratio Search), with one goal. It sends nothing itself: a Measurer does.
package search

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Goal is what a load has to fulfil, and how surely. The terms are those of RFC 9971, section 4.6.
type Goal struct {
	// LossRatio is the share of a trial's packets that may be lost, 0 to less than 1. It is 0 for the no drop rate.
	LossRatio float64
	// ExceedRatio is the share of the time of all trials at a load that may lose more, 0 to less than 1. It
	// keeps a few disturbed trials from deciding. The RFC advises 0.5.
	ExceedRatio float64
	// FinalDuration is how long a trial lasts that counts in favour of a load.
	FinalDuration time.Duration
	// DurationSum is how much time in trials of full length decides about a load, at the latest.
	DurationSum time.Duration
	// InitialDuration is the length of the first, rough trials, FinalDuration if it is 0.
	InitialDuration time.Duration
	// Width is how far apart the bounds may be in the end, as a share of the upper one.
	Width float64
}

// Range is where to search and how much to spend on it.
type Range struct {
	// MinLoad and MaxLoad bound the loads that are tried, in packets a second.
	MinLoad, MaxLoad float64
	// Start is the first load that is tried, MaxLoad if it is 0.
	Start float64
	// Trials and Time end a search that does not come to an end by itself, by their number and their summed length.
	Trials int
	Time   time.Duration
	// Shortfall is the share of a load by which the offered rate may miss it. A trial that misses by more shows
	// nothing about the device, and its load is too high.
	Shortfall float64
}

// Result is what a trial showed.
type Result struct {
	// Offered is the rate at which packets were sent, in packets a second.
	Offered float64
	// Sent and Lost count packets.
	Sent, Lost uint64
}

// Measurer offers a load, in packets a second, for a time.
type Measurer func(ctx context.Context, load float64, duration time.Duration) (Result, error)

// Trial is one trial and its result.
type Trial struct {
	Load     float64
	Duration time.Duration
	Result
}

// lossRatio is that of RFC 9971, 4.5.5. A trial without packets has lost all.
func (t Trial) lossRatio() float64 {
	if t.Sent == 0 {
		return 1
	}
	return float64(t.Lost) / float64(t.Sent)
}

// Limit says what keeps the load from being higher.
type Limit int

// What the upper bound is due to.
const (
	// NoLimit means that there is no upper bound: the highest load allowed was within the goal.
	NoLimit Limit = iota
	// DeviceLimit means that the device lost more than the goal.
	DeviceLimit
	// GeneratorLimit means that a higher load could not be offered, so the device may be able to do more.
	GeneratorLimit
)

// Outcome is the end of a search, a Goal Result in terms of RFC 9971, 4.8.4.
type Outcome struct {
	// Lower is the relevant lower bound, in packets a second: the highest load found to be within the goal, below
	// every load that was found not to be. 0 if there is none.
	Lower float64
	// Upper is the relevant upper bound: the lowest load found not to be within the goal. 0 if there is none.
	Upper float64
	// Throughput is the conditional throughput: the forwarding rate at Lower, in packets a second.
	Throughput float64
	// Limit is what Upper is due to.
	Limit Limit
	// Trials is how many trials there were, Spent their summed length.
	Trials int
	Spent  time.Duration
	// Irregular says why the bounds are not both there and as close as the goal demands. It is empty if they are.
	Irregular string
}

// Regular tells whether both bounds were found, as close as the goal demands.
func (o Outcome) Regular() bool { return o.Irregular == "" }

func (g Goal) check() error {
	share := func(x float64) bool { return x >= 0 && x < 1 }
	switch {
	case !share(g.LossRatio) || !share(g.ExceedRatio):
		return fmt.Errorf("search with loss ratio %g and exceed ratio %g: each must be at least 0 and below 1",
			g.LossRatio, g.ExceedRatio)
	case g.FinalDuration <= 0 || g.DurationSum < g.FinalDuration || g.InitialDuration < 0:
		return fmt.Errorf("search with trials of %s, %s in all: trials need a length, and the sum must hold one",
			g.FinalDuration, g.DurationSum)
	case !(g.Width > 0 && g.Width < 1):
		return fmt.Errorf("search with width %g: it must be above 0 and below 1", g.Width)
	}
	return nil
}

func (r Range) check() error {
	switch {
	case !(r.MinLoad > 0) || !(r.MaxLoad >= r.MinLoad):
		return fmt.Errorf("search loads from %g to %g: they must be above 0 and in ascending order", r.MinLoad, r.MaxLoad)
	case r.Trials <= 0 || r.Time <= 0:
		return errors.New("search without an end: say how many trials and how much time it may take")
	case !(r.Shortfall >= 0 && r.Shortfall < 1):
		return fmt.Errorf("search with a shortfall of %g: it must be at least 0 and below 1", r.Shortfall)
	}
	return nil
}
