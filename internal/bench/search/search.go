// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// roughWidth is the width at which short trials end, as a multiple of the goal's.
const roughWidth = 4

// errSpent ends a search that has used up its trials or its time.
var errSpent = errors.New("spent")

type searcher struct {
	measure Measurer
	limits  Range
	trials  map[float64][]Trial
	count   int
	spent   time.Duration
	// why says why the search ended early. It is empty if it did not.
	why string
}

// Find searches for the highest load that meets a goal. When ctx ends or a trial fails, it returns what it has found until
// then, with the error.
//
// Short trials, one for each load, find about where the limit is. Then loads near it get trials of full length until they are
// decided. Loads go up or down in growing steps until there are two bounds, and then halve the distance between them.
func Find(ctx context.Context, g Goal, r Range, measure Measurer) (Outcome, error) {
	if err := errors.Join(g.check(), r.check()); err != nil {
		return Outcome{}, err
	}
	s := &searcher{measure: measure, limits: r, trials: map[float64][]Trial{}}
	start := min(max(r.Start, r.MinLoad), r.MaxLoad)
	if r.Start == 0 {
		start = r.MaxLoad
	}
	err := s.find(ctx, g, start)
	switch {
	case errors.Is(err, errSpent):
		err = nil
	case err != nil:
		s.why = "interrupted"
	}
	return s.outcome(g), err
}

func (s *searcher) find(ctx context.Context, g Goal, start float64) error {
	if short := g.InitialDuration; short > 0 && short < g.FinalDuration {
		rough := g
		rough.FinalDuration, rough.DurationSum = short, short
		rough.Width = min(roughWidth*g.Width, 0.5)
		if err := s.narrow(ctx, rough, start); err != nil {
			return err
		}
		if lower, upper := s.bounds(rough); lower > 0 {
			start = lower
		} else {
			start = upper
		}
	}
	return s.narrow(ctx, g, start)
}

// narrow decides loads, beginning with start, until the bounds are no further apart than the goal's width, or until one of
// them cannot be found within the range.
func (s *searcher) narrow(ctx context.Context, g Goal, start float64) error {
	step, direction := 0.0, 0
	// grow returns the factor of the next step up (1) or down (-1). It is the square of the last one in the same direction.
	grow := func(next int) float64 {
		if step *= step; next != direction {
			step, direction = 1+g.Width, next
		}
		return step
	}
	for load := start; ; {
		if err := s.decide(ctx, g, load); err != nil {
			return err
		}
		lower, upper := s.bounds(g)
		switch {
		case upper == 0 && lower >= s.limits.MaxLoad, lower == 0 && upper <= s.limits.MinLoad:
			return nil
		case upper == 0:
			load = min(lower*grow(1), s.limits.MaxLoad)
		case lower == 0:
			load = max(s.below(upper, grow(-1)), s.limits.MinLoad)
		case (upper-lower)/upper <= g.Width:
			return nil
		default:
			// The upper bound may be far too high, as that of a flood is. The step keeps the load near the lower bound then.
			load = min(math.Sqrt(lower*upper), lower*grow(1))
		}
	}
}

// below picks a load below an upper bound. It is the forwarding rate at the upper bound, which a device that does not suffer
// from overload can forward, or a step less if that rate is higher or has been tried.
func (s *searcher) below(upper, step float64) float64 {
	load := upper / step
	var forwarded float64
	for _, t := range s.trials[upper] {
		forwarded = max(forwarded, t.forwarded())
	}
	if forwarded < load && len(s.trials[forwarded]) == 0 {
		return forwarded
	}
	return load
}

// decide repeats trials at a load until it is classified.
func (s *searcher) decide(ctx context.Context, g Goal, load float64) error {
	for s.classify(g, s.trials[load]) == undecided {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch {
		case s.count >= s.limits.Trials:
			s.why = fmt.Sprintf("undecided after %d trials", s.count)
			return errSpent
		case s.spent >= s.limits.Time:
			s.why = fmt.Sprintf("undecided after %s of trials", s.spent)
			return errSpent
		}
		r, err := s.measure(ctx, load, g.FinalDuration)
		if err != nil {
			return err
		}
		s.trials[load] = append(s.trials[load], Trial{Load: load, Duration: g.FinalDuration, Result: r})
		s.count++
		s.spent += g.FinalDuration
	}
	return nil
}

func (s *searcher) outcome(g Goal) Outcome {
	o := Outcome{Trials: s.count, Spent: s.spent}
	o.Lower, o.Upper = s.bounds(g)
	o.Limit = s.limit(g, o.Upper)
	if o.Lower > 0 {
		o.Throughput = throughput(g, s.trials[o.Lower])
	}
	switch {
	case s.why != "":
		o.Irregular = s.why
	case o.Lower == 0:
		o.Irregular = fmt.Sprintf("not within the goal even at %.0f packets a second", s.limits.MinLoad)
	case o.Upper == 0:
		o.Irregular = fmt.Sprintf("within the goal up to %.0f packets a second, the highest load allowed", s.limits.MaxLoad)
	}
	return o
}
