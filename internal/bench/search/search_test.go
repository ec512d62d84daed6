// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// device simulates a device and a generator.
type device struct {
	// limit is the highest load without loss, in packets a second. Packets beyond it are lost.
	limit float64
	// generator is the highest load that can be offered, 0 for any.
	generator float64
	// disturb, if set, decides whether a trial loses a packet whatever its load.
	disturb func() bool
	// losses, if set, replaces limit: it returns the number of packets lost.
	losses func(load, sent float64) float64
	trials []Trial
}

func (d *device) measure(_ context.Context, load float64, duration time.Duration) (Result, error) {
	offered := load
	if d.generator > 0 {
		offered = min(load, d.generator)
	}
	sent := math.Round(offered * duration.Seconds())
	lost := math.Ceil(sent * max(0, 1-d.limit/offered))
	if d.losses != nil {
		lost = d.losses(offered, sent)
	}
	if d.disturb != nil && d.disturb() {
		lost = max(lost, 1)
	}
	r := Result{Offered: offered, Sent: uint64(sent), Lost: uint64(min(lost, sent))}
	d.trials = append(d.trials, Trial{Load: load, Duration: duration, Result: r})
	return r, nil
}

var (
	testGoal = Goal{
		ExceedRatio: 0.5, FinalDuration: 200 * time.Millisecond, DurationSum: time.Second,
		InitialDuration: 50 * time.Millisecond, Width: 0.02,
	}
	testRange = Range{MinLoad: 1e3, MaxLoad: 20e6, Trials: 200, Time: time.Minute, Shortfall: 0.01}
)

// checkFound checks that a search ended regularly, with its bounds around a limit.
func checkFound(t *testing.T, o Outcome, limit float64) {
	t.Helper()
	if !o.Regular() || o.Lower > limit || o.Upper < limit || (o.Upper-o.Lower)/o.Upper > testGoal.Width {
		t.Errorf("limit %.0f: %+v", limit, o)
	}
}

func TestSharpLimit(t *testing.T) {
	for limit := 1500.0; limit < testRange.MaxLoad; limit *= 1.37 {
		for _, start := range []float64{0, limit, limit / 10, limit * 3} {
			d := device{limit: limit}
			r := testRange
			r.Start = start
			o, err := Find(context.Background(), testGoal, r, d.measure)
			if err != nil {
				t.Fatal(err)
			}
			checkFound(t, o, limit)
			if o.Limit != DeviceLimit || o.Throughput != o.Lower || o.Trials != len(d.trials) {
				t.Errorf("limit %.0f: %+v after %d trials", limit, o, len(d.trials))
			}
			if o.Trials > 60 || o.Spent > 10*time.Second {
				t.Errorf("limit %.0f from %.0f: %d trials of %s in all", limit, start, o.Trials, o.Spent)
			}
		}
	}
}

// A device with a queue of its own hides losses from short trials.
func TestQueueHidesLossFromShortTrials(t *testing.T) {
	const limit, queue = 1e6, 5000
	d := device{losses: func(load, sent float64) float64 {
		return max(0, math.Floor(sent*max(0, 1-limit/load))-queue)
	}}
	o, err := Find(context.Background(), testGoal, testRange, d.measure)
	if err != nil {
		t.Fatal(err)
	}
	// In a trial of full length the queue takes more packets than the limit, and a fraction of a packet is not lost.
	checkFound(t, o, limit+(queue+1)/testGoal.FinalDuration.Seconds())
}

// One trial in ten is disturbed and loses a packet. The search finds the limit nevertheless. A search in which one disturbed
// trial decides does not.
func TestNoise(t *testing.T) {
	const limit = 1.234e6
	strict := testGoal
	strict.ExceedRatio, strict.DurationSum = 0, strict.FinalDuration
	misled := 0
	for seed := range uint64(40) {
		find := func(g Goal) Outcome {
			random := rand.New(rand.NewPCG(seed, 1))
			d := device{limit: limit, disturb: func() bool { return random.IntN(10) == 0 }}
			o, err := Find(context.Background(), g, testRange, d.measure)
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		g := testGoal
		g.DurationSum = 9 * g.FinalDuration
		if o := find(g); o.Lower > limit || o.Lower < 0.95*limit || !o.Regular() || o.Trials > 120 {
			t.Errorf("seed %d: %+v", seed, o)
		}
		if find(strict).Lower < 0.95*limit {
			misled++
		}
	}
	if misled == 0 {
		t.Error("the noise is too little to mislead anything")
	}
}

// Without an exceed ratio one disturbed trial decides, as in RFC 2544.
func TestStrictGoal(t *testing.T) {
	g := testGoal
	g.ExceedRatio = 0
	g.DurationSum = g.FinalDuration
	d := device{limit: 1e6}
	o, err := Find(context.Background(), g, testRange, d.measure)
	if err != nil {
		t.Fatal(err)
	}
	checkFound(t, o, 1e6)
	at := map[float64]int{}
	for _, trial := range d.trials {
		if trial.Duration == g.FinalDuration {
			if at[trial.Load]++; at[trial.Load] > 1 {
				t.Errorf("load %.0f tried again in full length", trial.Load)
			}
		}
	}
}

func TestAlwaysLoses(t *testing.T) {
	d := device{limit: 1e6, disturb: func() bool { return true }}
	o, err := Find(context.Background(), testGoal, testRange, d.measure)
	if err != nil {
		t.Fatal(err)
	}
	if o.Regular() || o.Lower != 0 || o.Throughput != 0 || o.Upper != testRange.MinLoad || o.Trials > 120 ||
		!strings.Contains(o.Irregular, "even at 1000 ") {
		t.Errorf("%+v", o)
	}
}

// If the device is faster than the generator, the result is the generator's limit, and the outcome says so.
func TestGeneratorLimit(t *testing.T) {
	d := device{limit: math.Inf(1), generator: 3e6}
	o, err := Find(context.Background(), testGoal, testRange, d.measure)
	if err != nil {
		t.Fatal(err)
	}
	// The generator may miss the load by the shortfall.
	if !o.Regular() || o.Limit != GeneratorLimit || o.Lower < 2.9e6 || o.Lower > 3.04e6 || o.Trials > 60 {
		t.Errorf("%+v", o)
	}
}

// The device is the limit even if the generator cannot offer much more.
func TestLossAtTheGeneratorsLimitIsTheDevices(t *testing.T) {
	d := device{limit: 2.5e6, generator: 3e6}
	o, err := Find(context.Background(), testGoal, testRange, d.measure)
	if err != nil {
		t.Fatal(err)
	}
	checkFound(t, o, 2.5e6)
	if o.Limit != DeviceLimit {
		t.Errorf("%+v", o)
	}
}

func TestNeverLoses(t *testing.T) {
	d := device{limit: math.Inf(1)}
	o, err := Find(context.Background(), testGoal, testRange, d.measure)
	if err != nil {
		t.Fatal(err)
	}
	if o.Regular() || o.Limit != NoLimit || o.Lower != testRange.MaxLoad || o.Upper != 0 ||
		!strings.Contains(o.Irregular, "highest load allowed") {
		t.Errorf("%+v", o)
	}
}

// The device loses packets in a range of loads but not directly above it. The limit is below that range.
func TestNonMonotonic(t *testing.T) {
	d := device{losses: func(load, sent float64) float64 {
		if load > 1e6 && load < 1.5e6 || load > 4e6 {
			return sent / 100
		}
		return 0
	}}
	r := testRange
	r.Start = 1.2e6
	o, err := Find(context.Background(), testGoal, r, d.measure)
	if err != nil {
		t.Fatal(err)
	}
	checkFound(t, o, 1e6)
	// A search that begins above the range does not find it, but its bounds are valid.
	r.Start = 3e6
	d.trials = nil
	if o, err = Find(context.Background(), testGoal, r, d.measure); err != nil {
		t.Fatal(err)
	}
	checkFound(t, o, 4e6)
}

// An upper bound below a lower bound is the relevant one.
func TestLateUpperBound(t *testing.T) {
	s := searcher{limits: testRange, trials: map[float64][]Trial{}}
	add := func(load float64, lost uint64) {
		for range 3 {
			s.trials[load] = append(s.trials[load], Trial{load, testGoal.FinalDuration, Result{load, 1000, lost}})
		}
	}
	add(1e6, 0)
	add(2e6, 1)
	add(3e6, 0)
	add(4e6, 1)
	if lower, upper := s.bounds(testGoal); lower != 1e6 || upper != 2e6 {
		t.Errorf("bounds %.0f and %.0f, want 1e6 and 2e6", lower, upper)
	}
}

// After a trial with overload the device loses packets in the next trial too, at any load.
func TestHysteresis(t *testing.T) {
	const limit = 1e6
	overloaded := false
	d := device{losses: func(load, sent float64) float64 {
		before := overloaded
		overloaded = load > limit
		switch {
		case overloaded:
			return sent * (1 - 0.3*limit/load)
		case before:
			return sent / 2
		default:
			return 0
		}
	}}
	o, err := Find(context.Background(), testGoal, testRange, d.measure)
	if err != nil {
		t.Fatal(err)
	}
	checkFound(t, o, limit)
}

func TestPartialDropRate(t *testing.T) {
	g := testGoal
	g.LossRatio = 0.005
	d := device{limit: 1e6}
	o, err := Find(context.Background(), g, testRange, d.measure)
	if err != nil {
		t.Fatal(err)
	}
	checkFound(t, o, 1e6/(1-g.LossRatio))
	if o.Throughput > 1e6+10 || o.Throughput > o.Lower {
		t.Errorf("%+v: more than the device forwards", o)
	}
}

func TestBudget(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Range)
		want   string
	}{
		{"trials", func(r *Range) { r.Trials = 12 }, "after 12 trials"},
		{"time", func(r *Range) { r.Time = 900 * time.Millisecond }, "of trials"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := testRange
			tc.change(&r)
			d := device{limit: 1e6}
			o, err := Find(context.Background(), testGoal, r, d.measure)
			if err != nil || o.Regular() || !strings.Contains(o.Irregular, tc.want) || len(d.trials) > r.Trials {
				t.Errorf("%+v, error %v", o, err)
			}
		})
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	d := device{limit: 1e6}
	n := 0
	o, err := Find(ctx, testGoal, testRange, func(ctx context.Context, load float64, duration time.Duration) (Result, error) {
		if n++; n == 10 {
			cancel()
		}
		return d.measure(ctx, load, duration)
	})
	if !errors.Is(err, context.Canceled) || n != 10 || o.Irregular != "interrupted" {
		t.Errorf("%d trials, %+v, error %v", n, o, err)
	}
}

func TestFailingTrial(t *testing.T) {
	broken := errors.New("broken")
	_, err := Find(context.Background(), testGoal, testRange,
		func(context.Context, float64, time.Duration) (Result, error) { return Result{}, broken })
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

func TestBadInput(t *testing.T) {
	for name, change := range map[string]func(*Goal, *Range){
		"loss ratio":   func(g *Goal, _ *Range) { g.LossRatio = 1 },
		"exceed ratio": func(g *Goal, _ *Range) { g.ExceedRatio = 1 },
		"duration":     func(g *Goal, _ *Range) { g.FinalDuration = 0 },
		"sum":          func(g *Goal, _ *Range) { g.DurationSum = g.FinalDuration - 1 },
		"width":        func(g *Goal, _ *Range) { g.Width = 0 },
		"not a number": func(g *Goal, _ *Range) { g.Width = math.NaN() },
		"no load":      func(_ *Goal, r *Range) { r.MinLoad = 0 },
		"order":        func(_ *Goal, r *Range) { r.MaxLoad = r.MinLoad / 2 },
		"no end":       func(_ *Goal, r *Range) { r.Trials = 0 },
		"no time":      func(_ *Goal, r *Range) { r.Time = 0 },
		"shortfall":    func(_ *Goal, r *Range) { r.Shortfall = 1 },
	} {
		g, r := testGoal, testRange
		change(&g, &r)
		d := device{limit: 1e6}
		if _, err := Find(context.Background(), g, r, d.measure); err == nil || len(d.trials) > 0 {
			t.Errorf("%s: error %v, %d trials", name, err, len(d.trials))
		}
	}
}
