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

// Row is a row of a scenario. All rows are set up before any is measured, so that their rounds can be interleaved.
type Row interface {
	// Name is stable: reports are compared by it.
	Name() string
	// Setup prepares everything that Run needs. The caller must call Teardown, also after an error.
	Setup(ctx context.Context) error
	// Run measures for about the duration of a round.
	Run(ctx context.Context, round time.Duration) (Sample, error)
	// Teardown removes everything that Setup made.
	Teardown() error
}

// described is a Row that describes itself in its report.
type described interface {
	Row
	// Describe sets the fields of row that are the same in all rounds, such as CPUs and frame size.
	Describe(row *report.Row)
}

// Sample is the measurement of one round of a row.
type Sample struct {
	Sent     uint64
	Received uint64
	// Lost counts the packets that did not arrive, by the place that counted them.
	Lost map[string]uint64
	// Others bounds the number of packets in Lost that belong to other traffic on the same path.
	Others uint64
	// Elapsed is the time in which the packets were sent.
	Elapsed time.Duration
	// Asked is the rate that was asked for, in packets a second, 0 for as many as possible.
	Asked float64
	// Exact is set if the row is about exactly the rate asked for. It is invalid if that was not reached.
	Exact bool
	// Use is how busy each CPU was while packets were sent, from 0 to 1.
	Use map[int]float64
	// Soft is how busy the CPU was with soft interrupts, nil if that was not measured.
	Soft *load.SoftUse
	// Order is the order in which packets arrived, nil if frames have no stamps.
	Order *report.Order
	// Note says what is particular about the measurement. It is empty if nothing is.
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

// Missing is the number of packets that were sent and neither received nor counted as lost. It is negative if packets were
// counted twice, or if other traffic was counted as lost.
func (s Sample) Missing() int64 {
	missing := int64(s.Sent) - int64(s.Received)
	for _, n := range s.Lost {
		missing -= int64(n)
	}
	return missing
}

// Accounted tells whether every packet was either received or counted as lost, exactly once.
func (s Sample) Accounted() bool { return s.Missing() <= 0 && -s.Missing() <= int64(s.Others) }

// RunOptions says how long a scenario runs.
type RunOptions struct {
	// Rounds is how often each row is measured.
	Rounds int
	// Round is the approximate duration of each measurement.
	Round time.Duration
	// Progress receives a line for each step.
	Progress io.Writer
}

// RunRows sets all rows up, measures them in turns and takes them down, also when something fails or ctx ends. The first
// round does not count: it fills caches, and rows find their rate in it.
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
			// Each round begins with another row, so that no row is always first.
			i := (round + turn) % len(rows)
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("interrupted: %w", err)
			}
			name := rows[i].Name()
			step := fmt.Sprintf("round %d of %d: %s", round, o.Rounds, name)
			if round == 0 {
				step = "warming up " + name
			}
			track.Begin(step)
			s, err := rows[i].Run(ctx, o.Round)
			if err != nil {
				return nil, fmt.Errorf("measure %s: %w", name, err)
			}
			if round == 0 {
				track.End(step, "")
				continue
			}
			rate := fmt.Sprintf("%.2f Mpps", s.Mpps())
			track.End(step+" "+rate, name+" "+rate)
			samples[i] = append(samples[i], s)
		}
	}
	return samples, nil
}
