// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
)

// Row is a load balancer that gets the packets of a group, from as many CPUs as the group has. Each CPU has a generator and its
// own queues at all interfaces, as with a network card that spreads flows over CPUs.
type Row struct {
	scenario.VethRow
	group *group
	// gens are the generators, one for each CPU.
	gens []*load.Generator
}

// newRow makes a row of a candidate.
func newRow(c peer.Candidate, g *group, o scenario.Options) *Row {
	v := scenario.VethOptions{CPU: load.LastCPU()}
	if g.cores > 1 {
		v.Queues = load.LastCPU() + 1 // one for each CPU number
	}
	g.SetTraffic(&v)
	r := &Row{VethRow: *scenario.VethRows([]peer.Candidate{c}, o, v)[0], group: g}
	r.Label += "@" + g.name
	if d, ok := r.Device.(*balancer); ok && g.hasLargeTable() {
		d.makeRoom(g.flows)
	}
	return r
}

// Setup makes the balancer and a generator for each CPU. Afterwards the balancer knows all flows, unless they are endless.
func (r *Row) Setup(ctx context.Context) error {
	if err := r.VethRow.Setup(ctx); err != nil {
		return err
	}
	if r.group.cores == 1 {
		r.gens = []*load.Generator{r.Gen}
	} else if err := r.perCPU(); err != nil {
		return err
	}
	if r.group.hasLargeTable() {
		return r.learn(ctx)
	}
	return nil
}

// learn sends two packets of each flow, so that the balancer considers none of them new.
func (r *Row) learn(ctx context.Context) (err error) {
	if r.Exclusive {
		defer func() { err = errors.Join(err, r.Close()) }()
		if err := r.Open(ctx); err != nil {
			return err
		}
	}
	_, err = r.Gen.Run(ctx, 2*uint64(r.group.flows))
	return err
}

// perCPU makes a generator for each CPU, with a part of the flows.
func (r *Row) perCPU() error {
	frames := r.Gen.Frames()
	var taken []int
	for range r.group.cores {
		cpu := load.PickCPU(func(cpu int) bool {
			for _, other := range taken {
				if cpu == other {
					return false
				}
			}
			return true
		})
		o := load.GeneratorOptions{From: r.Path.Source, CPU: cpu}
		for i := len(taken); i < len(frames); i += r.group.cores {
			o.Frames = append(o.Frames, frames[i])
		}
		taken = append(taken, cpu)
		gen, err := load.NewGenerator(o)
		if err != nil {
			return err
		}
		r.gens = append(r.gens, gen)
	}
	return nil
}

// Run measures one round.
func (r *Row) Run(ctx context.Context, round time.Duration) (scenario.Sample, error) {
	return scenario.NoteDiverted(r.Device, func() (scenario.Sample, error) {
		if r.group.cores == 1 {
			return r.VethRow.Run(ctx, round)
		}
		return r.onCPUs(ctx, round)
	})
}

// onCPUs measures one round with a generator on each CPU.
func (r *Row) onCPUs(ctx context.Context, round time.Duration) (s scenario.Sample, err error) {
	if r.Exclusive {
		defer func() { err = errors.Join(err, r.Close()) }()
		if err := r.Open(ctx); err != nil {
			return s, err
		}
	}
	if r.Refused, err = load.WatchRefusals(r.Path.Source, r.Path.Out); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, r.Refused.Close()) }()
	before, err := r.Count()
	if err != nil {
		return s, err
	}
	packets := uint64(scenario.FirstPackets)
	if r.Rate > 0 {
		packets = max(1, uint64(r.Rate*round.Seconds()))
	}
	if err := r.together(ctx, packets/uint64(len(r.gens)), &s); err != nil {
		return s, err
	}
	r.Rate = float64(s.Sent) / s.Elapsed.Seconds()
	return r.Settle(ctx, before, s)
}

// together makes all CPUs send at the same time, each the given number of packets. The time in s is that of the slowest.
func (r *Row) together(ctx context.Context, each uint64, s *scenario.Sample) error {
	sent := make([]load.Sent, len(r.gens))
	use, err := load.WatchCPUs(func() error {
		all, ctx := errgroup.WithContext(ctx)
		for i, gen := range r.gens {
			all.Go(func() (err error) {
				sent[i], err = gen.Run(ctx, each)
				return err
			})
		}
		return all.Wait()
	})
	s.Use = use
	for _, one := range sent {
		s.Sent += one.Packets
		s.Elapsed = max(s.Elapsed, one.Elapsed)
	}
	return err
}

// Describe adds the frames, and the CPUs of all generators.
func (r *Row) Describe(row *report.Row) {
	r.VethRow.Describe(row)
	row.Frames = int(r.group.flows)
	if r.group.flows == endless {
		row.Frames = 0
	}
	if r.group.cores > 1 {
		row.CPUs = nil
		for _, gen := range r.gens {
			row.CPUs = append([]int{gen.CPU()}, row.CPUs...)
		}
	}
}

// Teardown closes the generators and removes the balancer.
func (r *Row) Teardown() error {
	var err error
	for _, gen := range r.gens {
		if gen != r.Gen {
			err = errors.Join(err, gen.Close())
		}
	}
	return errors.Join(err, r.VethRow.Teardown())
}
