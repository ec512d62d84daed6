// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// Target is what is checked.
type Target struct {
	// ID names it in reports.
	ID uint32
	// Addr is where to ask; Check.Port takes the place of its port.
	Addr netip.AddrPort
	// Mark is put on the packets (SO_MARK), 0 for none. It takes CAP_NET_ADMIN.
	Mark  uint32
	Check Check
	// Known is what was known of it before it became a target: after a restart, for example.
	Known Result
}

// Options of a Checker.
type Options struct {
	// Report is called after each check of a target, with what is known of it and whether the state has changed. Calls
	// for one target come one after another, those for several at the same time. One for a target that has been taken
	// away may still be under way when Set returns.
	Report func(id uint32, r Result, changed bool)
	// Ready is asked before each check. Its error is the failure of the check: it cannot be made.
	Ready func(Target) error
}

// Checker checks targets, each at its own times, spread over their intervals.
//
// A target that is not Down is asked Fall times in each interval, at equal distances. So it is Down at most one interval
// after it began to refuse, and at most interval + timeout after it fell silent, as long as Fall timeouts fit in an
// interval; otherwise Fall timeouts + interval/Fall after that. What is Down is asked once in an interval, and is Up
// after Rise answers in a row.
type Checker struct {
	ctx context.Context
	o   Options
	wg  sync.WaitGroup

	mu      sync.Mutex
	targets map[uint32]*runner
}

// New returns a Checker that works until ctx ends.
func New(ctx context.Context, o Options) *Checker {
	return &Checker{ctx: ctx, o: o, targets: make(map[uint32]*runner)}
}

// Set says what the targets are. Those that stay the same go on as they are; what is known of a target stays when how
// it is checked changes.
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
		// The first check of each is at its place among the others.
		delay := r.judge.pause(t.Check) / time.Duration(len(begin)) * time.Duration(n)
		c.wg.Go(func() { r.loop(ctx, delay) })
	}
}

// Results returns what is known of all targets.
func (c *Checker) Results() map[uint32]Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[uint32]Result, len(c.targets))
	for id, r := range c.targets {
		all[id] = r.known()
	}
	return all
}

// Wait returns when all checks have ended: after the end of the context, or with no targets left.
func (c *Checker) Wait() { c.wg.Wait() }

// runner checks one target.
type runner struct {
	target Target
	o      Options
	stop   context.CancelFunc

	mu    sync.Mutex
	judge judge
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
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		failure := r.ask(ctx)
		if ctx.Err() != nil {
			return // it says nothing about the target
		}
		r.mu.Lock()
		changed := r.judge.take(r.target.Check, failure, began, time.Now())
		result, pause := r.judge.result, r.judge.pause(r.target.Check)
		r.mu.Unlock()
		r.o.Report(r.target.ID, result, changed)
		// At its place again, unless that is over.
		if due = due.Add(pause); time.Until(due) < 0 {
			due = time.Now()
		}
		timer.Reset(time.Until(due))
	}
}

func (r *runner) ask(ctx context.Context) error {
	if r.o.Ready != nil {
		if err := r.o.Ready(r.target); err != nil {
			return err
		}
	}
	return probe(ctx, r.target)
}
