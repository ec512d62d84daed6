// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/report"
)

// Row is one thing that a scenario measures beside others. All rows of a scenario are set up at the same time, so
// that their rounds can be interleaved.
type Row interface {
	// Name is stable: reports are compared by it.
	Name() string
	// Setup prepares everything that Run needs. Teardown is called after it, even when it failed.
	Setup(ctx context.Context) error
	// Run measures for about as long as it is told.
	Run(ctx context.Context, round time.Duration) (Sample, error)
	// Teardown removes all that Setup made.
	Teardown() error
}

// described is a Row that adds what is the same in all rounds to its report.
type described interface {
	Row
	Describe(row *report.Row)
}

// Sample is what one round of a row measured.
type Sample struct {
	Sent     uint64
	Received uint64
	// Lost counts the packets that did not arrive, by the place that counted them.
	Lost map[string]uint64
	// Others bounds how many of those in Lost were not sent here: other traffic on the same path.
	Others uint64
	// Elapsed is the time in which all of it was sent.
	Elapsed time.Duration
	// Asked is how many packets a second the generator was asked to send, 0 for as many as possible.
	Asked float64
	// Exact says that the row stands for the rate asked for, and shows nothing if that was not reached.
	Exact bool
	// Use is how busy each CPU was while packets were sent, from 0 to 1.
	Use map[int]float64
	// Soft is what the CPU did in soft interrupts, nil if nobody looked.
	Soft *load.SoftUse
	// Order is what became of the packets' order, nil if the frames have no stamps.
	Order *report.Order
	// Note says what is particular about the measurement, if anything.
	Note string
}

// Mpps is the rate at which packets arrived, in millions a second.
func (s Sample) Mpps() float64 { return s.mpps(s.Received) }

// Offered is the rate at which packets were sent, in millions a second.
func (s Sample) Offered() float64 { return s.mpps(s.Sent) }

func (s Sample) mpps(packets uint64) float64 {
	if s.Elapsed <= 0 {
		return 0
	}
	return float64(packets) / s.Elapsed.Seconds() / 1e6
}

// Missing is how many packets were sent and neither received nor counted as lost. It is negative if packets were
// counted twice, or other traffic was counted as lost.
func (s Sample) Missing() int64 {
	missing := int64(s.Sent) - int64(s.Received)
	for _, n := range s.Lost {
		missing -= int64(n)
	}
	return missing
}

// Accounted tells whether every packet was either received or counted as lost, once.
func (s Sample) Accounted() bool { return s.Missing() <= 0 && -s.Missing() <= int64(s.Others) }

// RunOptions says how long a scenario runs.
type RunOptions struct {
	// Rounds is how often each row is measured.
	Rounds int
	// Round is about how long a row is measured each time.
	Round time.Duration
	// Progress takes a line for each step.
	Progress io.Writer
}

// RunRows sets all rows up, measures them in turn and takes them down, also when something fails or ctx ends.
// A round that is not counted lets caches fill and each row find its rate.
func RunRows(ctx context.Context, rows []Row, o RunOptions) (samples [][]Sample, err error) {
	for _, row := range rows {
		defer func() {
			if downErr := row.Teardown(); downErr != nil {
				err = errors.Join(err, fmt.Errorf("take %s down: %w", row.Name(), downErr))
			}
		}()
		fmt.Fprintf(o.Progress, "setting up %s\n", row.Name())
		if err := row.Setup(ctx); err != nil {
			return nil, fmt.Errorf("set %s up: %w", row.Name(), err)
		}
	}
	samples = make([][]Sample, len(rows))
	track := NewSteps(o.Progress, (o.Rounds+1)*len(rows))
	for round := range o.Rounds + 1 {
		for turn := range rows {
			// Another row begins each time, so that no row always follows the same one.
			i := (round + turn) % len(rows)
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("interrupted: %w", err)
			}
			name := rows[i].Name()
			what := fmt.Sprintf("round %d of %d: %s", round, o.Rounds, name)
			if round == 0 {
				what = "warming up " + name
			}
			track.Begin(what)
			s, err := rows[i].Run(ctx, o.Round)
			if err != nil {
				return nil, fmt.Errorf("measure %s: %w", name, err)
			}
			if round == 0 {
				track.End(what, "")
				continue
			}
			rate := fmt.Sprintf("%.2f Mpps", s.Mpps())
			track.End(what+" "+rate, name+" "+rate)
			samples[i] = append(samples[i], s)
		}
	}
	return samples, nil
}
