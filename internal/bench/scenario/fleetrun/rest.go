// SPDX-License-Identifier: Apache-2.0

package fleetrun

import (
	"context"
	"fmt"
	"sync"
	"time"

	"culvert/internal/edit"
)

// quiet measures a fleet in which nothing changes.
func quiet(ctx context.Context, b *bed, r *rounds) error { return b.rest(ctx, r, false) }

// idle measures a fleet in which nothing is done, while the counters of all nodes change.
func idle(ctx context.Context, b *bed, r *rounds) error { return b.rest(ctx, r, true) }

// settling is how long the states of before need to be written.
const settling = 6 * time.Second

func (b *bed) rest(ctx context.Context, r *rounds, changing bool) error {
	b.busy.Store(changing)
	defer b.busy.Store(false)
	if err := sleep(ctx, min(settling, r.each)); err != nil {
		return err
	}
	return r.do(ctx, false, func(int) (string, error) {
		before, err := b.sample(ctx)
		if err != nil {
			return "", err
		}
		if err := sleep(ctx, r.each); err != nil {
			return "", err
		}
		after, err := b.sample(ctx)
		if err != nil {
			return "", err
		}
		r.usage(before, after)
		r.add("memory of a member", mebi, after.sum(metricMemory)/memberCount/(1<<20))
		r.add("database of a member", mebi, after.sum(metricDatabase)/memberCount/(1<<20))
		if used := memory(); used > b.base {
			r.add("memory of a node", kibi, float64(used-b.base)/float64(len(b.nodes))/1024)
		}
		return fmt.Sprintf("%.0f requests and %.0f kB a second into the log", (after.requests-before.requests)/after.at.Sub(before.at).Seconds(), after.since(before, metricWAL)/memberCount/1000), nil
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// restart measures all nodes that start at once, know nothing, and have a revision and an urgent change waiting for them.
func restart(ctx context.Context, b *bed, r *rounds) error {
	if err := b.document(ctx); err != nil {
		return err
	}
	expression := "udp src port 123"
	reach, err := b.fleet.Urgent(ctx, &edit.RuleAdd{Rule: "bench", Action: "drop", Expression: &expression}, everybody, 0, false)
	if err != nil {
		return err
	}
	err = r.do(ctx, false, func(int) (string, error) { return b.restartAll(ctx, r, reach.ID) })
	if err != nil {
		return err
	}
	_, err = b.fleet.Undo(ctx, reach.ID)
	return err
}

// document has nodes run a document if they run none.
func (b *bed) document(ctx context.Context) error {
	current, err := b.fleet.Current(ctx)
	if err != nil || current.Revision > 0 {
		return err
	}
	_, _, err = b.apply(ctx, document(0), "bench.toml", everywhere)
	return err
}

// restartAll stops all nodes and starts them.
func (b *bed) restartAll(ctx context.Context, r *rounds, urgent string) (string, error) {
	current, err := b.fleet.Current(ctx)
	if err != nil {
		return "", err
	}
	var work sync.WaitGroup
	for _, n := range b.nodes {
		work.Go(n.stop)
	}
	work.Wait()
	watching, done := context.WithCancel(ctx)
	defer done()
	first, err := b.sample(ctx)
	if err != nil {
		return "", err
	}
	peak := make(chan float64, 1)
	go func() { peak <- b.peak(watching) }()
	begun := time.Now()
	for _, n := range b.nodes {
		n.start()
	}
	back := make([]time.Duration, len(b.nodes))
	left := len(back)
	for left > 0 {
		for i, n := range b.nodes {
			if back[i] == 0 && n.plane.Revision() == current.Revision && !n.plane.Since(urgent).IsZero() && n.told(urgent) {
				back[i] = time.Since(begun)
				left--
			}
		}
		if time.Since(begun) > patience {
			return "", fmt.Errorf("%d of %d nodes are not back after %v", left, len(back), patience)
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return "", err
		}
	}
	done()
	most := <-peak
	last, err := b.sample(ctx)
	if err != nil {
		return "", err
	}
	if err := b.converged(ctx); err != nil {
		return "", err
	}
	p50, _, longest := r.addTimes("back, with the state written", back)
	r.add("requests in all", count, last.requests-first.requests)
	r.add("requests, most in 100 ms", perS, most)
	r.add("connections", count, last.connections-first.connections)
	r.add("CPUs of etcd", count, last.since(first, metricCPU))
	r.add("CPUs of nodes", count, (last.own-first.own).Seconds()/last.at.Sub(first.at).Seconds())
	return fmt.Sprintf("back after %.1f s (p50), %.1f s (last)", p50, longest), nil
}

// told tells whether the node has written its state, with an urgent change.
func (n *node) told(urgent string) bool {
	v := n.agent.View()
	for _, id := range v.Urgent {
		if id == urgent {
			return v.Writes > 0
		}
	}
	return false
}

// peak returns the highest rate of requests in a tenth of a second, until ctx ends.
func (b *bed) peak(ctx context.Context) (most float64) {
	const window = 100 * time.Millisecond
	at, last := time.Now(), b.traffic.now().requests
	for sleep(ctx, window) == nil {
		now, requests := time.Now(), b.traffic.now().requests
		most = max(most, (requests-last)/now.Sub(at).Seconds())
		at, last = now, requests
	}
	return most
}
