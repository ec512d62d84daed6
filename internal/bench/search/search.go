// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// roughly is how many times as far apart as the goal's the bounds are when the short trials end.
const roughly = 4

// errSpent ends a search that has used up its trials or its time.
var errSpent = errors.New("spent")

type searcher struct {
	measure Measurer
	limits  Range
	trials  map[float64][]Trial
	count   int
	spent   time.Duration
	// why says what was used up.
	why string
}

// Find searches. It returns what it has found also when ctx ends or a trial fails, with the error.
//
// Short trials, one at a load, find out about where the limit is. Then loads next to it are tried in full length,
// again and again until they are decided: going up or down in growing steps until there are bounds, and then halving
// between them.
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
		rough.Width = min(roughly*g.Width, 0.5)
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

// narrow tries loads, beginning with start, until the bounds are as close as the goal demands or cannot be found.
func (s *searcher) narrow(ctx context.Context, g Goal, start float64) error {
	step, going := 0.0, 0
	// grow gives the next step up (1) or down (-1), which is twice as long as the last if that went the same way.
	grow := func(way int) float64 {
		if step *= step; way != going {
			step, going = 1+g.Width, way
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
			// An upper bound far above, as that of a flood, is approached from below.
			load = min(math.Sqrt(lower*upper), lower*grow(1))
		}
	}
}

// below picks a load below an upper bound: what came through there, which a device that keeps up under overload can
// take, or a step less.
func (s *searcher) below(upper, step float64) float64 {
	load := upper / step
	var through float64
	for _, t := range s.trials[upper] {
		through = max(through, min(t.Offered, t.Load)*(1-t.lossRatio()))
	}
	if through < load && len(s.trials[through]) == 0 {
		return through
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
		o.Throughput = throughput(g, o.Lower, s.trials[o.Lower])
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
