// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"context"
	"errors"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
)

// Row is a filter with rules, which is flooded with the packets of a group.
type Row struct {
	name  string
	group *group
	bed   *bed
	soft  *load.Softirqs
	// cpu is the CPU of the filter, from that of the generator.
	cpu, from int
	gen       *load.Generator
	// rate is the rate of the last round in packets a second, 0 before the first.
	rate float64
}

// hold is load.GeneratorOptions.Hold: paced packets leave in batches, as a network card coalesces interrupts.
const hold = 20 * time.Microsecond

// Name implements scenario.Row.
func (r *Row) Name() string { return r.name }

// Setup installs the rules and makes the generator.
func (r *Row) Setup(ctx context.Context) error {
	if err := r.bed.use(ctx); err != nil {
		return err
	}
	frames, err := r.group.frames(r.bed.path, r.bed.rules.Set)
	if err != nil {
		return err
	}
	r.gen, err = load.NewGenerator(load.GeneratorOptions{Frames: frames, From: r.bed.path.Source, CPU: r.from, Hold: hold, Nice: r.group.nice()})
	if err == nil {
		r.gen.Pace(r.group.pace)
	}
	return err
}

// Run measures one round.
func (r *Row) Run(ctx context.Context, round time.Duration) (scenario.Sample, error) {
	before, err := r.bed.count(ctx)
	if err != nil {
		return scenario.Sample{}, err
	}
	packets := uint64(scenario.FirstPackets)
	switch {
	case r.group.pace > 0:
		packets = max(1, uint64(r.group.pace*round.Seconds()))
	case r.rate > 0:
		packets = max(1, uint64(r.rate*round.Seconds()))
	}
	var sent load.Sent
	use, err := r.soft.During(r.cpu, func() error {
		sent, err = r.gen.Run(ctx, packets)
		return err
	})
	if err != nil {
		return scenario.Sample{}, err
	}
	if sent.Elapsed > 0 {
		r.rate = float64(sent.Packets) / sent.Elapsed.Seconds()
	}
	return r.settle(ctx, before, scenario.Sample{Sent: sent.Packets, Elapsed: sent.Elapsed, Asked: r.group.pace, Soft: &use})
}

// settle completes the sample once every packet is accounted for, at the latest after scenario.SettleLimit.
func (r *Row) settle(ctx context.Context, before count, s scenario.Sample) (scenario.Sample, error) {
	for end := time.Now().Add(scenario.SettleLimit); ; time.Sleep(scenario.SettleQuiet) {
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

// Describe adds the filter's rules and the time to install them.
func (r *Row) Describe(row *report.Row) {
	row.FrameSize, row.CPUs, row.Frames = frameLen, []int{r.cpu}, len(r.gen.Frames())
	row.Filter = &report.Filter{Set: len(r.bed.rules.Set), Install: r.bed.install.Seconds()}
	if !r.group.open {
		row.Filter.Rules = r.bed.rules.Idle + 1
	}
}

// Teardown closes the generator and releases the bed.
func (r *Row) Teardown() error {
	var err error
	if r.gen != nil {
		err = r.gen.Close()
	}
	return errors.Join(err, r.bed.release())
}
