// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"culvert/internal/bench/report"
)

// lbRow is a load balancer that gets the packets of a group, from as many CPUs as the group has. Each CPU has a generator, a
// queue of the balancer's interfaces and of the sink's, as with a network card that spreads flows over CPUs.
type lbRow struct {
	vethRow
	group *lbGroup
	// gens has the generator of each CPU.
	gens []*Generator
}

// newLBRow makes a row of a candidate.
func newLBRow(c candidate, g *lbGroup, o Options) *lbRow {
	v := vethOptions{CPU: LastCPU()}
	if g.cores > 1 {
		v.Queues = LastCPU() + 1 // one for each number that a CPU may have
	}
	g.shape(&v)
	r := &lbRow{vethRow: *vethRows([]candidate{c}, o, v)[0], group: g}
	r.name += "@" + g.name
	if d, ok := r.device.(*lbBalancer); ok && g.table() {
		d.room(g.flows)
	}
	return r
}

// Setup makes the balancer, which has seen all flows then if there are not endless ones, and a generator for each CPU.
func (r *lbRow) Setup(ctx context.Context) error {
	if err := r.vethRow.Setup(ctx); err != nil {
		return err
	}
	if r.group.cores == 1 {
		r.gens = []*Generator{r.gen}
	} else if err := r.perCPU(); err != nil {
		return err
	}
	if r.group.table() {
		return r.learn(ctx)
	}
	return nil
}

// learn sends two packets of each flow, so that none is one that has just begun.
func (r *lbRow) learn(ctx context.Context) (err error) {
	if r.alone {
		defer func() { err = errors.Join(err, r.close()) }()
		if err := r.open(ctx); err != nil {
			return err
		}
	}
	_, err = r.gen.Run(ctx, 2*uint64(r.group.flows))
	return err
}

// perCPU makes a generator for each CPU, with a part of the flows.
func (r *lbRow) perCPU() error {
	frames := r.gen.Frames()
	var taken []int
	for range r.group.cores {
		cpu := pickCPU(func(cpu int) bool {
			for _, other := range taken {
				if cpu == other {
					return false
				}
			}
			return true
		})
		o := GeneratorOptions{From: r.path.Source, CPU: cpu}
		for i := len(taken); i < len(frames); i += r.group.cores {
			o.Frames = append(o.Frames, frames[i])
		}
		taken = append(taken, cpu)
		gen, err := NewGenerator(o)
		if err != nil {
			return err
		}
		r.gens = append(r.gens, gen)
	}
	return nil
}

// Run measures one round.
func (r *lbRow) Run(ctx context.Context, round time.Duration) (Sample, error) {
	return noteAside(r.device, func() (Sample, error) {
		if r.group.cores == 1 {
			return r.vethRow.Run(ctx, round)
		}
		return r.onCPUs(ctx, round)
	})
}

// onCPUs measures one round with a generator on each CPU.
func (r *lbRow) onCPUs(ctx context.Context, round time.Duration) (s Sample, err error) {
	if r.alone {
		defer func() { err = errors.Join(err, r.close()) }()
		if err := r.open(ctx); err != nil {
			return s, err
		}
	}
	if r.refused, err = watchRefusals(r.path.Source, r.path.Out); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, r.refused.Close()) }()
	before, err := r.count()
	if err != nil {
		return s, err
	}
	packets := uint64(firstPackets)
	if r.rate > 0 {
		packets = max(1, uint64(r.rate*round.Seconds()))
	}
	if err := r.together(ctx, packets/uint64(len(r.gens)), &s); err != nil {
		return s, err
	}
	r.rate = float64(s.Sent) / s.Elapsed.Seconds()
	return r.settle(ctx, before, s)
}

// together has all CPUs send at the same time. The time is that of the slowest.
func (r *lbRow) together(ctx context.Context, each uint64, s *Sample) error {
	sent := make([]Sent, len(r.gens))
	use, err := watchCPUs(func() error {
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

// describe says what was sent from where.
func (r *lbRow) describe(row *report.Row) {
	r.vethRow.describe(row)
	row.Frames = int(r.group.flows)
	if r.group.flows == lbEndless {
		row.Frames = 0
	}
	if r.group.cores > 1 {
		row.CPUs = nil
		for _, gen := range r.gens {
			row.CPUs = append([]int{gen.CPU()}, row.CPUs...)
		}
	}
}

// Teardown lets everything go.
func (r *lbRow) Teardown() error {
	var err error
	for _, gen := range r.gens {
		if gen != r.gen {
			err = errors.Join(err, gen.Close())
		}
	}
	return errors.Join(err, r.vethRow.Teardown())
}
