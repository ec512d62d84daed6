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
	// searchRound bounds the time for which the search for the best rate tries each rate.
	searchRound = 300 * time.Millisecond
	// pacedRounds is the length of rounds of paced rows, as a multiple of that of others. Devices that lose packets vary
	// more.
	pacedRounds = 2
	// paceStep is the factor from one rate to the next in the first part of the search.
	paceStep = 1.25
	// refineTrials is how often the second part of the search tries each rate.
	refineTrials = 3
)

// findPace searches for the offered rate at which most packets arrive, and sets it as the row's pace. First it raises the
// rate in steps until it gets no better. Then the best rate and the two half a step below and above take turns, because a
// single trial may be disturbed.
func (r *VethRow) findPace(ctx context.Context, round time.Duration) error {
	flood, err := r.Send(ctx, round)
	if err != nil {
		return err
	}
	r.limit = r.Rate
	best, mostArrived := 0.0, flood.Mpps()
	// Three steps without gain end the first part, because fewer can be a disturbance. It begins above the rate at which
	// packets of the flood arrived: fewer offered packets cannot make more arrive.
	for pace, idle := mostArrived*1e6*paceStep, 0; pace < r.limit && idle < 3; pace *= paceStep {
		r.setPace(pace)
		s, err := r.Send(ctx, round)
		if err != nil {
			return err
		}
		idle++
		if s.Mpps() > mostArrived {
			best, mostArrived, idle = pace, s.Mpps(), 0
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

// around returns the best rate found so far and the rates half a step below and above it. A rate of 0 stands for as much as
// the generator can send, which is limit.
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

// bestOf tries rates in turns and returns the one with the highest median rate of packets that arrive.
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
	highest := -1.0
	for i, pace := range paces {
		if m := report.NewSpread(arrived[i]).Median; m > highest {
			best, highest = pace, m
		}
	}
	return best, nil
}

// setPace sets the rate of the next rounds in packets a second, 0 for as many as the generator can send.
func (r *VethRow) setPace(pace float64) {
	r.Pace, r.Rate = pace, pace
	if pace == 0 {
		r.Rate = r.limit
	}
	r.Gen.Pace(pace)
}

// paceNote is the note of a paced row, which says at what rate its packets are offered.
func paceNote(pace float64) string {
	if pace == 0 {
		return "flooded with all that the generator can send: no lower rate does better"
	}
	return fmt.Sprintf("paced at %.2f Mpps, the offered rate that it does best at", pace/1e6)
}
