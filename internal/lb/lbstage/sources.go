// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/source"
	"culvert/internal/lb/sourcestate"
)

// retryPeriod is the time between two attempts to bring backends into force that the load balancer has refused.
const retryPeriod = 5 * time.Second

// feed brings what one source names into force.
type feed struct {
	sourceSpec
	inst *datapath.Instance
	log  *slog.Logger

	keeper  *source.Keeper
	failing bool       // there is no answer since the last failure
	inForce []lb.Offer // what the load balancer has of it
	serial  uint64     // of the load balancer's state when inForce was read
	changes uint64

	mu    sync.Mutex
	state sourcestate.Source
}

// feeds are the sources that a Serve asks.
type feeds struct {
	all  []*feed
	work sync.WaitGroup
}

// startFeeds asks sources and brings what they name into force, until ctx ends and Wait returns.
func startFeeds(ctx context.Context, inst *datapath.Instance, specs []sourceSpec, log *slog.Logger) *feeds {
	fs := new(feeds)
	for _, spec := range specs {
		f := &feed{sourceSpec: spec, inst: inst, log: log.With("vip", spec.vip.String(), "source", spec.name)}
		f.state = sourcestate.Source{
			VIP: spec.vip.String(), Name: spec.name, Kind: spec.kind, State: sourcestate.Waiting, Since: time.Now().UTC().Truncate(time.Millisecond),
		}
		f.look()
		f.keeper = source.NewKeeper(spec.rules, f.inForce, time.Now())
		f.state.Backends, f.state.Leaving = f.keeper.InForce()
		fs.all = append(fs.all, f)
		fs.work.Go(func() { f.run(ctx) })
	}
	return fs
}

// wait waits until all have ended.
func (fs *feeds) wait() { fs.work.Wait() }

// states returns those of all sources.
func (fs *feeds) states() []sourcestate.Source {
	all := []sourcestate.Source{}
	if fs == nil {
		return all
	}
	for _, f := range fs.all {
		f.mu.Lock()
		all = append(all, f.state)
		f.mu.Unlock()
	}
	return all
}

// look reads what the load balancer has of the source, if its state has changed: a VIP that was deleted by hand comes back without
// the backends of its sources.
func (f *feed) look() {
	plane, err := lbplane.View(f.inst)
	if err != nil {
		return // the next change finds out
	}
	serial, err := plane.Serial()
	if err != nil || serial == f.serial {
		return
	}
	if s, err := lb.Load(plane); err == nil {
		f.inForce, f.serial = s.OffersOf(f.vip, f.name), serial
	}
}

// lookPeriod is the time between two looks at what the load balancer has of a source.
const lookPeriod = 500 * time.Millisecond

// told is what a source has told.
type told struct {
	offers []lb.Offer
	err    error
}

func (f *feed) run(ctx context.Context) {
	answers := make(chan told)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		f.source.Watch(ctx, func(offers []lb.Offer, err error) {
			select {
			case answers <- told{offers, err}:
			case <-ctx.Done():
			}
		})
	})
	look := time.NewTicker(lookPeriod)
	defer look.Stop()
	again := f.step()
	for ctx.Err() == nil {
		var due <-chan time.Time
		var timer *time.Timer
		if !again.IsZero() {
			timer = time.NewTimer(time.Until(again))
			due = timer.C
		}
		is := f.serial
		select {
		case <-ctx.Done():
		case <-due:
			again = f.step()
		case a := <-answers:
			f.take(a)
			again = f.step()
		case <-look.C:
			if f.look(); f.serial != is {
				again = f.step()
			}
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// take takes an answer of the source.
func (f *feed) take(a told) {
	now := time.Now()
	f.failing = a.err != nil
	if f.failing {
		f.keeper.Fail()
		f.enter(sourcestate.Failing, a.err.Error(), func(s *sourcestate.Source) { s.Failures++ })
		return
	}
	f.keeper.Answer(a.offers, now)
	f.update(func(s *sourcestate.Source) {
		at := now.UTC().Truncate(time.Millisecond)
		s.Answered = &at
		s.Answers++
	})
}

// step brings into force what is to be, and returns when to look again, zero for after the next answer.
func (f *feed) step() time.Time {
	now := time.Now()
	p := f.keeper.Propose(now)
	if !slices.Equal(p.Offers, f.inForce) {
		if err := f.apply(p.Offers); err != nil {
			f.enter(sourcestate.Refused, err.Error(), nil)
			return now.Add(retryPeriod)
		}
		f.logChange(p.Offers)
		f.inForce = p.Offers
		f.changes++
	}
	f.keeper.Commit(p, now)
	f.update(func(s *sourcestate.Source) {
		s.Backends, s.Leaving = f.keeper.InForce()
		s.Changes = f.changes
	})
	f.mu.Lock()
	answered := f.state.Answered != nil
	f.mu.Unlock()
	switch held := f.keeper.Held(); {
	case held != "":
		f.enter(sourcestate.Held, held, nil)
	case answered && !f.failing:
		f.enter(sourcestate.OK, "", nil)
	}
	return p.Again
}

// apply brings backends into force as a whole, or not at all.
func (f *feed) apply(offers []lb.Offer) error {
	return lb.Edit(f.inst, func(s *lb.State) error {
		if !s.SetOffers(f.vip, f.name, offers) {
			return errors.New("the VIP was deleted by hand: it comes back when the file is read again")
		}
		return nil
	})
}

// update changes the state that is shown.
func (f *feed) update(change func(*sourcestate.Source)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.state)
}

// enter changes the state of the source, and logs that once.
func (f *feed) enter(state, why string, change func(*sourcestate.Source)) {
	f.mu.Lock()
	was := f.state
	if was.State != state {
		f.state.Since = time.Now().UTC().Truncate(time.Millisecond)
	}
	f.state.State, f.state.Why = state, why
	if change != nil {
		change(&f.state)
	}
	backends := f.state.Backends
	f.mu.Unlock()
	switch {
	case was.State == state: // 'lb show' has the latest reason
	case state == sourcestate.OK && was.Troubled():
		f.log.Info("source of backends is well again", "backends", backends)
	case state == sourcestate.Failing:
		f.log.Warn("source of backends fails: the backends that it had stay", "backends", backends, "err", why)
	case state == sourcestate.Held:
		f.log.Warn("source of backends is not believed: the backends that it had stay", "backends", backends, "why", why)
	case state == sourcestate.Refused:
		f.log.Warn("backends of a source cannot be had: those that it had stay", "backends", backends, "err", why)
	}
}

// mostLogged bounds how many backends a line of the log names.
const mostLogged = 10

// logChange logs which backends have come, gone and changed.
func (f *feed) logChange(now []lb.Offer) {
	was := make(map[netip.Addr]lb.Offer, len(f.inForce))
	for _, o := range f.inForce {
		was[o.Addr] = o
	}
	var come, leave, gone, other []string
	for _, o := range now {
		old, had := was[o.Addr]
		delete(was, o.Addr)
		switch {
		case had && old == o:
		case o.Leaving:
			leave = append(leave, o.Addr.String())
		case !had || old.Leaving:
			come = append(come, o.Addr.String())
		default:
			other = append(other, o.Addr.String())
		}
	}
	for _, o := range f.inForce {
		if _, missing := was[o.Addr]; missing {
			gone = append(gone, o.Addr.String())
		}
	}
	var fields []any
	for _, g := range []struct {
		what string
		all  []string
	}{{"added", come}, {"draining", leave}, {"removed", gone}, {"changed", other}} {
		if n := len(g.all); n > mostLogged {
			g.all = append(g.all[:mostLogged:mostLogged], fmt.Sprintf("and %d more", n-mostLogged))
		}
		if len(g.all) > 0 {
			fields = append(fields, g.what, strings.Join(g.all, ", "))
		}
	}
	f.log.Info("a source has changed backends", fields...)
}
