// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/scenario"
)

const (
	// churnRate is how many packets a second are sent while routes change: well below what any row can forward.
	churnRate = 200_000
	// churnUpdates is how many changes of routes a second there are, churnTick how often some of them are made.
	churnUpdates = 10_000
	churnTick    = 10 * time.Millisecond
	// churnRounds is how many times as long a round is as of other groups.
	churnRounds = 10
	// churnAway is how many routes are missing at any time, at most.
	churnAway = 512
	// churnLeast is how many routes there must be to change.
	churnLeast = 16
)

// churn changes routes: other gateways, and routes removed and made again. A default route remains, so that every
// destination has a route at any time.
type churn struct {
	writer   *writer
	gateways []netip.Addr
	// ring has the routes to change, of which every second one has a destination of the traffic. Those removed last,
	// up to lag of them, are missing.
	ring []netip.Prefix
	lag  int
	// removed and restored count routes along the ring.
	removed, restored int
	// made counts all changes.
	made uint64
}

// newChurn changes routes of a bed, those among them that the traffic of a group takes.
func newChurn(b *bed, g *group) (*churn, error) {
	c := &churn{writer: b.writer, gateways: gatewaysOf(g.v6)}
	few := fewRoutes()
	others := (*b.table.of(g.v6))[len(*few.of(g.v6)):]
	taken := map[netip.Prefix]bool{}
	take := func(p netip.Prefix) {
		if !taken[p] {
			taken[p] = true
			c.ring = append(c.ring, p)
		}
	}
	for i, p := range g.from {
		take(p)
		if len(others) > 0 {
			take(others[i*len(others)/len(g.from)])
		}
	}
	c.lag = min(churnAway, len(c.ring)/8)
	if len(c.ring) < churnLeast {
		return nil, fmt.Errorf("change routes: there are %d to change, at least %d are needed", len(c.ring), churnLeast)
	}
	return c, nil
}

// at is a route along the ring.
func (c *churn) at(n int) netip.Prefix { return c.ring[n%len(c.ring)] }

// step makes so many changes: of four one removes a route, one makes again what was removed, and two lead routes to
// another gateway, far from those that are missing.
func (c *churn) step(n int) error {
	for range n {
		var err error
		gateway := c.gateways[int(c.made/3)%len(c.gateways)]
		switch k := c.made % 4; {
		case k == 0:
			err = c.writer.change(deleteRoute, c.at(c.removed), netip.Addr{})
			c.removed++
		case k == 1 && c.removed-c.restored >= c.lag:
			err = c.restore(gateway)
		default:
			err = c.writer.change(putRoute, c.at(c.removed+len(c.ring)/4*int(1+k%2)), gateway)
		}
		if err != nil {
			return err
		}
		c.made++
	}
	return c.writer.flush()
}

// restore makes the route again that has been missing the longest.
func (c *churn) restore(gateway netip.Addr) error {
	c.restored++
	return c.writer.change(addRoute, c.at(c.restored-1), gateway)
}

// run makes changes at the rate wanted until ctx ends, and leaves no route missing. It runs on a CPU, if there is one
// besides that of the traffic.
func (c *churn) run(ctx context.Context, cpu int) error {
	err := load.OnThread(func() error {
		if err := load.Pin(cpu); err != nil {
			return err
		}
		tick := time.NewTicker(churnTick)
		defer tick.Stop()
		for start, before := time.Now(), c.made; ; {
			select {
			case <-ctx.Done():
				return nil
			case now := <-tick.C:
				due := int(now.Sub(start).Seconds()*churnUpdates) - int(c.made-before)
				// After a standstill not all of it comes at once.
				if err := c.step(min(due, churnUpdates/10)); err != nil {
					return err
				}
			}
		}
	})
	for c.restored < c.removed {
		err = errors.Join(err, c.restore(c.gateways[c.restored%len(c.gateways)]))
	}
	return errors.Join(err, c.writer.flush())
}

// underChurn sends packets at a moderate rate while routes change.
func (r *Row) underChurn(ctx context.Context, round time.Duration) (s scenario.Sample, err error) {
	c, err := newChurn(r.bed, r.group)
	if err != nil {
		return s, err
	}
	during, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- c.run(during, load.AnotherCPU(r.Opts.CPU)) }()
	r.Pace, r.Rate = churnRate, churnRate
	r.Gen.Pace(r.Pace)
	start := time.Now()
	s, err = r.Send(ctx, round)
	seconds := time.Since(start).Seconds()
	stop()
	if err = errors.Join(err, <-done); err != nil {
		return s, err
	}
	if r.warm {
		r.updates += c.made
	}
	s.Note = fmt.Sprintf("about %.0f changes of routes a second", float64(c.made)/seconds)
	return s, nil
}
