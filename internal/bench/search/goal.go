// SPDX-License-Identifier: Apache-2.0

// Package search finds the highest load at which a device meets a goal for its losses, after RFC 2544, 26.1, and RFC 9971
// (Multiple Loss Ratio Search) with one goal. It sends nothing itself: a Measurer does.
package search

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Goal is the condition that a load has to meet, and with what certainty. The terms are those of RFC 9971 (Goal Terms).
type Goal struct {
	// LossRatio is the share of a trial's packets that may be lost, 0 to less than 1. It is 0 for the no drop rate.
	LossRatio float64
	// ExceedRatio is the share of the time of all trials at a load that may lose more than LossRatio, 0 to less than 1. With
	// it a few disturbed trials do not decide. The RFC advises 0.5.
	ExceedRatio float64
	// FinalDuration is the length of a trial of full length. Only such trials count for a load.
	FinalDuration time.Duration
	// DurationSum is the time in trials of full length after which a load is decided at the latest.
	DurationSum time.Duration
	// InitialDuration is the length of the first, rough trials. 0 stands for FinalDuration.
	InitialDuration time.Duration
	// Width is the largest difference of the final bounds, as a share of the upper one.
	Width float64
}

// Range bounds a search: the loads to try, and the effort.
type Range struct {
	// MinLoad and MaxLoad bound the loads that are tried, in packets a second.
	MinLoad, MaxLoad float64
	// Start is the first load that is tried. 0 stands for MaxLoad.
	Start float64
	// Trials bounds the number of trials, Time their summed length.
	Trials int
	Time   time.Duration
	// Shortfall is the share of a load by which the offered rate may miss it. A trial that misses by more says nothing about
	// the device, and its load counts as too high.
	Shortfall float64
}

// Result is the result of a trial.
type Result struct {
	// Offered is the rate at which packets were sent, in packets a second.
	Offered float64
	// Sent and Lost count packets.
	Sent, Lost uint64
}

// Measurer offers a load, in packets a second, for a time, and counts the losses.
type Measurer func(ctx context.Context, load float64, duration time.Duration) (Result, error)

// Trial is one trial and its result.
type Trial struct {
	Load     float64
	Duration time.Duration
	Result
}

// lossRatio is the Trial Loss Ratio of RFC 9971. It is 1 for a trial without packets.
func (t Trial) lossRatio() float64 {
	if t.Sent == 0 {
		return 1
	}
	return float64(t.Lost) / float64(t.Sent)
}

// Limit says what the upper bound is due to.
type Limit int

// All limits.
const (
	// NoLimit means that there is no upper bound: Range.MaxLoad met the goal.
	NoLimit Limit = iota
	// DeviceLimit means that the device lost more than the goal allows.
	DeviceLimit
	// GeneratorLimit means that a higher load could not be offered, so the device may be able to do more.
	GeneratorLimit
)

// Outcome is the end of a search, a Goal Result in terms of RFC 9971.
type Outcome struct {
	// Lower is the relevant lower bound, in packets a second: the highest load that met the goal and is below Upper. It is 0
	// if there is none.
	Lower float64
	// Upper is the relevant upper bound, in packets a second: the lowest load that missed the goal. It is 0 if there is none.
	Upper float64
	// Throughput is the conditional throughput: the forwarding rate at Lower, in packets a second. It is below Lower because
	// of losses, and because the generator may fall short of the load.
	Throughput float64
	// Limit says what Upper is due to.
	Limit Limit
	// Trials is the number of trials, Spent their summed length.
	Trials int
	Spent  time.Duration
	// Irregular says why a bound is missing or the bounds are further apart than Goal.Width. It is empty if neither is so.
	Irregular string
}

// Regular tells whether both bounds were found, no further apart than Goal.Width.
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
