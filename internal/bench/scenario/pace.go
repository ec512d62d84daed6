// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"math"
	"time"

	"culvert/internal/bench/report"
)

const (
	// searchRound bounds how long each rate is tried when the best is looked for.
	searchRound = 300 * time.Millisecond
	// pacedRounds is how many times as long the rounds of paced rows are: devices that lose packets vary more.
	pacedRounds = 2
	// paceStep is the factor from one rate to the next in the first part of the search.
	paceStep = 1.25
	// refineTrials is how often each rate is tried in the second part.
	refineTrials = 3
)

// findPace looks for the offered rate at which most packets arrive, and keeps it. Rates go up in steps until none does
// better any more. Then the best and those half a step beside it take turns, because a single trial may be disturbed.
func (r *VethRow) findPace(ctx context.Context, round time.Duration) error {
	flood, err := r.Send(ctx, round)
	if err != nil {
		return err
	}
	r.limit = r.Rate
	best, most := 0.0, flood.Mpps()
	// Three steps without gain end the search: fewer can be a disturbance. What arrives is at most what is offered,
	// so no rate up to the flood's own can be better.
	for pace, idle := most*1e6*paceStep, 0; pace < r.limit && idle < 3; pace *= paceStep {
		r.setPace(pace)
		s, err := r.Send(ctx, round)
		if err != nil {
			return err
		}
		idle++
		if s.Mpps() > most {
			best, most, idle = pace, s.Mpps(), 0
		}
	}
	if best, err = r.bestOf(ctx, around(best, r.limit), round); err != nil {
		return err
	}
	r.setPace(best)
	if r.paceNote = paceNote(best); r.Note != "" {
		r.paceNote += "; " + r.Note
	}
	return nil
}

// around lists the rates that may be best if one of them has been found to be: that one and those half a step below
// and above it. A rate of 0 stands for all that the generator can send, which is limit.
func around(best, limit float64) []float64 {
	half := math.Sqrt(paceStep)
	if best == 0 {
		return []float64{0, limit / half}
	}
	if best*half >= limit {
		return []float64{best / half, best, 0}
	}
	return []float64{best / half, best, best * half}
}

// bestOf tries rates in turns and returns the one at which most packets arrive in the median.
func (r *VethRow) bestOf(ctx context.Context, paces []float64, round time.Duration) (best float64, err error) {
	arrived := make([][]float64, len(paces))
	for range refineTrials {
		for i, pace := range paces {
			r.setPace(pace)
			s, err := r.Send(ctx, round)
			if err != nil {
				return 0, err
			}
			arrived[i] = append(arrived[i], s.Mpps())
		}
	}
	most := -1.0
	for i, pace := range paces {
		if m := report.NewSpread(arrived[i]).Median; m > most {
			best, most = pace, m
		}
	}
	return best, nil
}

// setPace sets the rate of the next rounds, 0 for all that the generator can send.
func (r *VethRow) setPace(pace float64) {
	r.Pace, r.Rate = pace, pace
	if pace == 0 {
		r.Rate = r.limit
	}
	r.Gen.Pace(pace)
}

// paceNote says how a paced row is offered its packets.
func paceNote(pace float64) string {
	if pace == 0 {
		return "flooded with all that the generator can send: no lower rate does better"
	}
	return fmt.Sprintf("paced at %.2f Mpps, the offered rate that it does best at", pace/1e6)
}
