// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// Target is a service that is checked.
type Target struct {
	// ID identifies it in reports.
	ID uint32
	// Addr is the address to probe. Check.Port replaces its port unless it is 0.
	Addr netip.AddrPort
	// Mark is the mark of the packets (SO_MARK), 0 for none. It needs CAP_NET_ADMIN.
	Mark  uint32
	Check Check
	// Known is the result to start with, from an earlier process for example.
	Known Result
}

// Options of a Checker.
type Options struct {
	// Report is called after each probe of a target, with its result and whether its state has changed. Calls for one target
	// come one after another, calls for different targets may come at the same time. A call for a target that has been removed
	// may still be running when Set returns.
	Report func(id uint32, r Result, changed bool)
	// Ready is called before each probe. If it returns an error, that is the failure of the probe, and nothing is sent.
	Ready func(Target) error
}

// Checker checks targets. Their probes are spread over the interval.
//
// A target that is not Down is probed Fall times in each interval, at equal distances. So it is Down at most one interval
// after it began to refuse. After it fell silent it is Down within interval + timeout if Fall timeouts fit in an interval,
// else within Fall timeouts + interval/Fall. A target that is Down is probed once in an interval. It is Up after Rise passed
// probes in a row.
type Checker struct {
	ctx context.Context
	o   Options
	wg  sync.WaitGroup

	mu      sync.Mutex
	targets map[uint32]*runner
}

// New returns a Checker without targets. It runs until ctx ends.
func New(ctx context.Context, o Options) *Checker {
	return &Checker{ctx: ctx, o: o, targets: make(map[uint32]*runner)}
}

// Set replaces the targets. Targets that are the same as before go on undisturbed. A target with the same ID and another
// address, mark or check starts with the result it had.
func (c *Checker) Set(targets []Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wanted := make(map[uint32]Target, len(targets))
	var begin []Target
	for _, t := range targets {
		wanted[t.ID] = t
		r := c.targets[t.ID]
		if r != nil && r.same(t) {
			continue
		}
		if r != nil {
			r.stop()
			t.Known = r.known()
			delete(c.targets, t.ID)
		}
		begin = append(begin, t)
	}
	for id, r := range c.targets {
		if _, ok := wanted[id]; !ok {
			r.stop()
			delete(c.targets, id)
		}
	}
	for n, t := range begin {
		ctx, stop := context.WithCancel(c.ctx)
		r := &runner{target: t, o: c.o, stop: stop, judge: judge{result: t.Known}}
		c.targets[t.ID] = r
		// The first probes are spread over the interval.
		delay := r.judge.pause(t.Check) / time.Duration(len(begin)) * time.Duration(n)
		c.wg.Go(func() { r.loop(ctx, delay) })
	}
}

// late is how long after its timeout a probe has ended at the latest, also on a busy machine.
const late = 5 * time.Second

// Late tells whether a probe that should have ended has not: nothing is known of its target any more.
func (c *Checker) Late(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.targets {
		if r.late(now) {
			return true
		}
	}
	return false
}

// Wait returns when all checks have ended, which they do when the context ends or no targets are left.
func (c *Checker) Wait() { c.wg.Wait() }

// runner checks one target.
type runner struct {
	target Target
	o      Options
	stop   context.CancelFunc

	mu    sync.Mutex
	judge judge
	next  time.Time // when the next probe begins, or began
}

func (r *runner) same(t Target) bool {
	return r.target.Addr == t.Addr && r.target.Mark == t.Mark && r.target.Check == t.Check
}

func (r *runner) known() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.judge.result
}

func (r *runner) loop(ctx context.Context, delay time.Duration) {
	defer r.stop()
	due := time.Now().Add(delay)
	r.begins(due)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		failure := r.probe(ctx)
		if ctx.Err() != nil {
			return // the failure may come from the end of the context
		}
		r.mu.Lock()
		changed := r.judge.add(r.target.Check, failure, began, time.Now())
		result, pause := r.judge.result, r.judge.pause(r.target.Check)
		r.mu.Unlock()
		r.o.Report(r.target.ID, result, changed)
		// Keep the distance between probes, unless the next one is late already.
		if due = due.Add(pause); time.Until(due) < 0 {
			due = time.Now()
		}
		r.begins(due)
		timer.Reset(time.Until(due))
	}
}

// begins notes when the next probe begins.
func (r *runner) begins(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = at
}

// late tells whether the probe that was to begin at next has not ended long after its timeout.
func (r *runner) late(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.next.IsZero() && now.Sub(r.next) > r.target.Check.Timeout+late
}

func (r *runner) probe(ctx context.Context) error {
	if r.o.Ready != nil {
		if err := r.o.Ready(r.target); err != nil {
			return err
		}
	}
	return probe(ctx, r.target)
}
