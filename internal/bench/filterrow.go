// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"time"

	"culvert/internal/bench/report"
)

// filterRow is a filter with its rules, flooded with the packets of a group.
type filterRow struct {
	name  string
	group *filterGroup
	bed   *filterBed
	soft  *softirqs
	// cpu is where the filter runs, from where the generator does.
	cpu, from int
	gen       *Generator
	// rate is how many packets were sent in a second the last time, 0 before the first.
	rate float64
}

// filterHold is how long a paced packet may wait to leave in a batch with others, as an interface collects some before it
// interrupts.
const filterHold = 20 * time.Microsecond

func (r *filterRow) Name() string { return r.name }

// Setup puts the rules in force and makes the generator.
func (r *filterRow) Setup(ctx context.Context) error {
	if err := r.bed.use(ctx); err != nil {
		return err
	}
	frames, err := r.group.frames(r.bed.path, r.bed.rules.Set)
	if err != nil {
		return err
	}
	r.gen, err = NewGenerator(GeneratorOptions{Frames: frames, From: r.bed.path.Source, CPU: r.from, Hold: filterHold, Nice: r.group.nice()})
	if err == nil {
		r.gen.Pace(r.group.pace)
	}
	return err
}

// Run measures one round.
func (r *filterRow) Run(ctx context.Context, round time.Duration) (Sample, error) {
	before, err := r.bed.count(ctx)
	if err != nil {
		return Sample{}, err
	}
	packets := uint64(firstPackets)
	switch {
	case r.group.pace > 0:
		packets = max(1, uint64(r.group.pace*round.Seconds()))
	case r.rate > 0:
		packets = max(1, uint64(r.rate*round.Seconds()))
	}
	var sent Sent
	use, err := r.soft.during(r.cpu, func() error {
		sent, err = r.gen.Run(ctx, packets)
		return err
	})
	if err != nil {
		return Sample{}, err
	}
	if sent.Elapsed > 0 {
		r.rate = float64(sent.Packets) / sent.Elapsed.Seconds()
	}
	return r.settle(ctx, before, Sample{Sent: sent.Packets, Elapsed: sent.Elapsed, Asked: r.group.pace, Soft: &use})
}

// settle completes the sample once every packet has turned up, or when waiting does not help.
func (r *filterRow) settle(ctx context.Context, before filterCount, s Sample) (Sample, error) {
	for end := time.Now().Add(settleLimit); ; time.Sleep(settleQuiet) {
		after, err := r.bed.count(ctx)
		if err != nil {
			return s, err
		}
		s.Lost = map[string]uint64{}
		for where, n := range after.lost {
			s.Lost[where] = n - before.lost[where]
		}
		dropped, passed := after.dropped-before.dropped, after.passed-before.passed
		s.Received = dropped
		if r.group.pass {
			s.Received = passed
			s.Lost["filter"] = dropped
		}
		if s.Accounted() || ctx.Err() != nil || time.Now().After(end) {
			return s, nil
		}
	}
}

// describe says what the filter had to do.
func (r *filterRow) describe(row *report.Row) {
	row.FrameSize, row.CPUs, row.Frames = filterFrame, []int{r.cpu}, len(r.gen.Frames())
	row.Filter = &report.Filter{Set: len(r.bed.rules.Set), Install: r.bed.install.Seconds()}
	if !r.group.open {
		row.Filter.Rules = r.bed.rules.Idle + 1
	}
}

// Teardown lets everything go.
func (r *filterRow) Teardown() error {
	var err error
	if r.gen != nil {
		err = r.gen.Close()
	}
	return errors.Join(err, r.bed.release())
}
