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
	// churnRate is the rate of packets while routes change, in packets a second. All rows can forward much more.
	churnRate = 200_000
	// churnUpdates is the number of changes of routes a second. They are made in batches, every churnTick.
	churnUpdates = 10_000
	churnTick    = 10 * time.Millisecond
	// churnRounds is the duration of a round, as a multiple of that of other groups.
	churnRounds = 10
	// maxMissing is the largest number of routes that are missing at any time.
	maxMissing = 512
	// minChurnRoutes is the smallest number of routes that can be changed.
	minChurnRoutes = 16
)

// churn changes routes: it leads them to other gateways, removes them and adds them again. A default route remains, so that
// every destination has a route at any time.
type churn struct {
	writer   *writer
	gateways []netip.Addr
	// ring has the routes to change. Every second one is a route of the traffic. Up to lag of those removed last are missing
	// from the table.
	ring []netip.Prefix
	lag  int
	// removed and restored count the routes removed and added again, along the ring.
	removed, restored int
	// made counts all changes.
	made uint64
}

// newChurn makes a churn of routes of a bed, among them all routes of a group's traffic.
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
	c.lag = min(maxMissing, len(c.ring)/8)
	if len(c.ring) < minChurnRoutes {
		return nil, fmt.Errorf("change routes: there are %d to change, at least %d are needed", len(c.ring), minChurnRoutes)
	}
	return c, nil
}

// at is route number n along the ring, which wraps.
func (c *churn) at(n int) netip.Prefix { return c.ring[n%len(c.ring)] }

// step makes n changes. Of four changes one removes a route, one adds a removed route again, and two lead a route to another
// gateway. The latter routes are far along the ring from those that are missing.
func (c *churn) step(n int) error {
	for range n {
		var err error
		gateway := c.gateways[int(c.made/3)%len(c.gateways)]
		switch k := c.made % 4; {
		case k == 0:
			err = c.writer.change(deleteRoute, c.at(c.removed))
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

// restore adds the route again that has been missing longest.
func (c *churn) restore(gateway netip.Addr) error {
	c.restored++
	return c.writer.change(addRoute, c.at(c.restored-1), gateway)
}

// run makes churnUpdates changes a second until ctx ends. Then it restores all routes that are missing. It runs on the given
// CPU.
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
				// After a standstill the changes that are due are made in several steps.
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

// underChurn measures a round with packets at churnRate while routes change.
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
