// SPDX-License-Identifier: Apache-2.0

// Package pulse tells whether loops turn that a process cannot do without.
package pulse

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Pulse is that of one loop. All methods accept nil, and may be called at the same time.
type Pulse struct {
	what   string
	within time.Duration
	// last is when the loop turned last, in nanoseconds after began; 0 before the first turn and after the last.
	last atomic.Int64
}

// began is a time of the monotonic clock, which also stands still while the machine sleeps.
var began = time.Now()

// New returns the pulse of a loop that turns at least once within a time. what names it: "the mirror of the routing tables". A
// loop that has not begun counts as alive.
func New(what string, within time.Duration) *Pulse { return &Pulse{what: what, within: within} }

// Beat is called by the loop at each turn.
func (p *Pulse) Beat() {
	if p != nil {
		p.last.Store(max(int64(time.Since(began)), 1))
	}
}

// End is called when the loop has ended as it should.
func (p *Pulse) End() {
	if p != nil {
		p.last.Store(0)
	}
}

// Alive returns an error if the loop has not turned for too long.
func (p *Pulse) Alive() error {
	if p == nil {
		return nil
	}
	last := p.last.Load()
	if last == 0 {
		return nil
	}
	if since := time.Since(began) - time.Duration(last); since > p.within {
		return fmt.Errorf("%s has not turned for %s", p.what, since.Round(time.Second))
	}
	return nil
}

// Alive returns the errors of several loops.
func Alive(all ...*Pulse) error {
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Alive())
	}
	return errors.Join(errs...)
}
