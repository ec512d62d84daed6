// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
	"culvert/internal/lb"
)

// managed is culvert's load balancer with ringSize backends, which is changed as 'culvert lb' does it.
type managed struct{ balancer }

const (
	// ringSize is the number of backends of the service whose ring is changed.
	ringSize = 1000
	// ringNet is the prefix length of the backends' network.
	ringNet = 16
	// resolveLimit bounds the time until the next hops of all backends are known.
	resolveLimit = 20 * time.Second
)

// managedService is the service with the ring.
var managedService = lb.Service{Addr: vip4.Addr(), Port: vip4.Port(), Protocol: lb.TCP}

// ringBackend is the address of backend n.
func ringBackend(n int) netip.Addr {
	a := netOut.Addr().As4()
	const subnets, each = 4, 250
	a[2], a[3] = byte(subnets+n/each), byte(1+n%each)
	return netip.AddrFrom4(a)
}

// Prepare adds the backends, which are neighbors, and pauses the data plane. culvert checks whether the far end accepts redirected
// frames. The sink is not attached yet, so Prepare makes the far end listen meanwhile.
func (d *managed) Prepare(ctx context.Context, p peer.Path) error {
	listening, err := load.Listen(p.Sink)
	if err != nil {
		return err
	}
	return errors.Join(d.prepare(ctx, p), listening.Close())
}

func (d *managed) prepare(ctx context.Context, p peer.Path) error {
	if err := p.Out.Assign(netip.PrefixFrom(netOut.Addr().Next(), ringNet)); err != nil {
		return err
	}
	for n := range ringSize {
		if err := p.Out.SetNeighbor(ringBackend(n), p.Sink.MAC); err != nil {
			return err
		}
	}
	if err := d.load(p, nil); err != nil {
		return err
	}
	err := lb.Edit(d.inst, func(s *lb.State) error {
		s.Source4 = sources
		err := s.AddVIP(managedService, lb.VIPSpec{})
		for n := range ringSize {
			err = errors.Join(err, s.AddBackend(managedService, ringBackend(n), lb.BackendSpec{}))
		}
		return err
	})
	if err != nil {
		return err
	}
	err = p.In.Netns.Do(func() error {
		limited, cancel := context.WithTimeout(ctx, resolveLimit)
		defer cancel()
		missing, err := lb.Resolve(limited, d.inst)
		switch {
		case ctx.Err() != nil:
			err = fmt.Errorf("interrupted: %w", ctx.Err())
		case err == nil && len(missing) > 0:
			err = fmt.Errorf("find the next hops of %d backends: they are no neighbors", len(missing))
		}
		return err
	})
	if err != nil {
		return err
	}
	return d.inst.Pause()
}

// change drains the first backend, or ends that.
func (d *managed) change(drained bool) error {
	return lb.Edit(d.inst, func(s *lb.State) error { return s.Drain(managedService, ringBackend(0), drained) })
}

// runRingChanges changes the ring of a service with many backends during traffic. Each packet has a flow of its own, so that each
// looks the ring up. The note has the duration of changes. The row is invalid if a packet is lost.
func runRingChanges(ctx context.Context, name string, o scenario.Options) (_ report.Row, err error) {
	d := &managed{}
	v := scenario.VethOptions{CPU: load.LastCPU()}
	(&group{flows: endless, syn: true}).SetTraffic(&v)
	row := &scenario.VethRow{Label: name, Device: d, Opts: v}
	defer func() { err = errors.Join(err, row.Teardown()) }()
	fmt.Fprintf(o.Progress, "setting up %s\n", name)
	if err := row.Setup(ctx); err != nil {
		return report.Row{}, fmt.Errorf("set %s up: %w", name, err)
	}
	if row.Refused, err = load.WatchRefusals(row.Path.Source, row.Path.Out); err != nil {
		return report.Row{}, err
	}
	defer func() { err = errors.Join(err, row.Refused.Close()) }()
	before, err := row.Count()
	if err != nil {
		return report.Row{}, err
	}
	sent, took, err := changeUnder(ctx, row.Gen, d, 3*o.Rounds)
	if err != nil {
		return report.Row{}, fmt.Errorf("measure %s: %w", name, err)
	}
	s, err := row.Settle(ctx, before, scenario.Sample{Sent: sent.Packets, Elapsed: sent.Elapsed})
	if err != nil {
		return report.Row{}, err
	}
	out := report.Row{Name: name, Sent: s.Sent, Received: s.Received, Lost: map[string]uint64{}, Valid: s.Sent > 0 && s.Sent == s.Received}
	for where, n := range s.Lost {
		if n > 0 {
			out.Lost[where] = n
		}
	}
	row.Describe(&out)
	ms := report.NewSpread(took)
	out.Note = fmt.Sprintf("%d changes of the ring of %d backends at %.2f Mpps, %d of %d packets lost: median %.1f ms, %.1f to %.1f", len(took),
		ringSize, s.Offered(), s.Sent-min(s.Sent, s.Received), s.Sent, ms.Median, ms.Min, ms.Max)
	out.Samples = map[string][]float64{"change_ms": took}
	return out, nil
}

// changeUnder makes a number of changes during traffic, with a pause after each. It returns the packets sent, and the duration of
// each change in milliseconds.
func changeUnder(ctx context.Context, gen *load.Generator, d *managed, changes int) (sum load.Sent, took []float64, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	const pause = 20 * time.Millisecond
	go func() {
		defer stop()
		done <- load.OnThread(func() error {
			if err := load.Pin(load.AnotherCPU(load.LastCPU())); err != nil {
				return err
			}
			for n := range changes {
				start := time.Now()
				if err := d.change(n%2 > 0); err != nil {
					return err
				}
				took = append(took, float64(time.Since(start))/float64(time.Millisecond))
				select {
				case <-ctx.Done():
					return fmt.Errorf("interrupted: %w", ctx.Err())
				case <-time.After(pause):
				}
			}
			return nil
		})
	}()
	for ctx.Err() == nil && err == nil {
		var one load.Sent
		one, err = gen.Run(ctx, scenario.FirstPackets)
		sum.Packets, sum.Elapsed = sum.Packets+one.Packets, sum.Elapsed+one.Elapsed
	}
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	stop()
	return sum, took, errors.Join(err, <-done)
}
