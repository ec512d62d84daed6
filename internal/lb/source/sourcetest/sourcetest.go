// SPDX-License-Identifier: Apache-2.0

// Package sourcetest has the test that each kind of source passes.
package sourcetest

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"culvert/internal/lb"
	"culvert/internal/lb/source"
	"culvert/internal/testbed"
)

// World is what a source of a kind asks: a file, a server of names, an etcd.
type World struct {
	// Source returns a source that asks it.
	Source source.Source
	// Set has it name these backends and no others.
	Set func([]netip.Addr)
	// Spoil has it say something that is no list of backends, and Break keeps the source from asking it. After either, Mend has it say
	// again what it has said before. Nil for a world that cannot.
	Spoil, Break, Mend func()
}

// Watched is a source that is watched.
type Watched struct {
	t       testing.TB
	answers chan answer
	end     context.CancelFunc
	done    chan struct{}
}

type answer struct {
	offers []lb.Offer
	err    error
}

// Watch watches a source until the test ends.
func Watch(t testing.TB, s source.Source) *Watched {
	ctx, end := context.WithCancel(context.Background())
	w := &Watched{t: t, answers: make(chan answer, 1000), end: end, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		s.Watch(ctx, func(offers []lb.Offer, err error) {
			select {
			case <-ctx.Done():
			default:
				w.answers <- answer{offers, err}
			}
		})
	}()
	t.Cleanup(w.End)
	return w
}

// End ends the watch, and fails if that takes long.
func (w *Watched) End() {
	w.end()
	select {
	case <-w.done:
	case <-time.After(testbed.Patience):
		w.t.Error("the source goes on after its context has ended")
	}
}

// Await waits for an answer for which ok returns true, and returns it. It fails if none comes.
func (w *Watched) Await(what string, ok func([]lb.Offer, error) bool) ([]lb.Offer, error) {
	w.t.Helper()
	last, late := "none", time.After(testbed.Patience)
	for {
		select {
		case a := <-w.answers:
			w.check(a)
			if ok(a.offers, a.err) {
				return a.offers, a.err
			}
			last = fmt.Sprintf("%s, error %v", addresses(a.offers), a.err)
		case <-late:
			w.t.Fatalf("%s: did not come; the last answer was %s", what, last)
		}
	}
}

// Backends waits for an answer with these backends.
func (w *Watched) Backends(want ...string) []lb.Offer {
	w.t.Helper()
	offers, _ := w.Await("backends "+strings.Join(want, " "), func(offers []lb.Offer, err error) bool {
		return err == nil && addresses(offers) == strings.Join(want, " ")
	})
	return offers
}

// Fails waits for an error with a text.
func (w *Watched) Fails(want string) {
	w.t.Helper()
	w.Await("an error with "+want, func(_ []lb.Offer, err error) bool { return err != nil && strings.Contains(err.Error(), want) })
}

// check looks at what holds of every answer.
func (w *Watched) check(a answer) {
	w.t.Helper()
	if a.err != nil && (len(a.offers) > 0 || strings.ContainsAny(a.err.Error(), "\n\x00") || len(a.err.Error()) > 1000) {
		w.t.Errorf("backends beside an error, or one of several lines: %v, %q", a.offers, a.err)
	}
	seen := make(map[netip.Addr]bool)
	for _, o := range a.offers {
		if seen[o.Addr] || !o.Addr.IsValid() || o.Leaving || o.Weight > lb.MaxWeight {
			w.t.Errorf("the answer has %+v, or has it twice", o)
		}
		seen[o.Addr] = true
	}
}

func addresses(offers []lb.Offer) string {
	var all []string
	for _, o := range offers {
		all = append(all, o.Addr.String())
	}
	return strings.Join(all, " ")
}

// Run tests a source of a kind. It needs the world to itself.
func Run(t *testing.T, world World) {
	set := func(texts ...string) {
		var all []netip.Addr
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		world.Set(all)
	}
	set("10.0.0.2", "10.0.0.1")
	w := Watch(t, world.Source)
	w.Backends("10.0.0.1", "10.0.0.2")
	set("10.0.0.1", "10.0.0.2", "10.0.0.3")
	w.Backends("10.0.0.1", "10.0.0.2", "10.0.0.3")
	set("10.0.0.3")
	w.Backends("10.0.0.3")
	set("10.0.0.4") // nothing is left of it
	w.Backends("10.0.0.4")
	for what, damage := range map[string]func(){"spoiled": world.Spoil, "broken": world.Break} {
		if damage == nil {
			continue
		}
		damage()
		w.Await("an error once it is "+what, func(_ []lb.Offer, err error) bool { return err != nil })
		world.Mend()
		w.Backends("10.0.0.4") // the same as before, and told all the same
	}
	set("10.0.0.5", "10.0.0.4")
	w.Backends("10.0.0.4", "10.0.0.5")
	w.End()

	set("10.0.0.6")
	again := Watch(t, world.Source)
	again.Backends("10.0.0.6") // a source may be watched again
	set()
	again.Await("no backends, or an error that says so", func(offers []lb.Offer, err error) bool { return len(offers) == 0 })
	again.End()
}
