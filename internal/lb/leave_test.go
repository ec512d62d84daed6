// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"testing"

	"culvert/internal/datapath"
	"culvert/internal/lb/health"
	"culvert/internal/lb/lbplane"
)

// lastSet is an Announcer that has the prefixes of the last Set.
type lastSet struct{ text string }

func (a *lastSet) Set(ctx context.Context, prefixes []netip.Prefix) error {
	a.text = fmt.Sprint(prefixes)
	return ctx.Err()
}

// TestLeave ends a process right after a change that it has not seen. Prefixes that are no longer served are withdrawn.
func TestLeave(t *testing.T) {
	one, two, six := vip(t, "192.0.2.1:80/tcp", "10.0.0.11"), vip(t, "192.0.2.1:53/udp", "10.0.0.12"), vip(t, "[2001:db8::1]:80/tcp", "10.0.0.11")
	_ = newInstance(t, lbplane.Options{RingSize: 17}) // for its namespace
	inst, err := datapath.Attach(datapath.Options{Name: fmt.Sprintf("leave%d", os.Getpid()), Interfaces: []string{"lb1"}, Parts: []datapath.Part{
		lbplane.NewPart(lbplane.Options{RingSize: 17, Fill: Fill(State{VIPs: []VIP{one, two, six}})}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inst.DetachAll(); inst.Close() }()
	p, _ := view(t, inst)
	announced := []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::1/128")}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	upToDate, spoken := true, true
	expect := func(want string) {
		t.Helper()
		a := &lastSet{"nothing"}
		r := &runner{
			Options: Options{Instance: inst, Log: slog.New(slog.DiscardHandler), Announcer: a}, plane: p,
			announced: announced, upToDate: upToDate, spoken: spoken, failed: map[string]string{},
		}
		r.leave(ended)
		if a.text != want {
			t.Errorf("announced %s, want %s", a.text, want)
		}
	}
	edit := func(change func(*State) error) {
		t.Helper()
		if err := Edit(inst, change); err != nil {
			t.Fatal(err)
		}
	}
	expect("nothing")
	upToDate = false // a change was seen, but not announced before the context ended
	expect("[192.0.2.1/32 2001:db8::1/128]")
	spoken = false
	expect("nothing")
	upToDate, spoken = true, true
	edit(func(s *State) error { s.find(one.Service).Drained = true; return nil })
	expect("nothing")
	edit(func(s *State) error { s.find(two.Service).Backends[0].Drained = true; return nil })
	expect("[2001:db8::1/128]")
	edit(func(s *State) error { _, err := s.DeleteVIP(six.Service); return err })
	expect("[]")
	edit(func(s *State) error { s.find(one.Service).Drained = false; return nil })
	expect("[192.0.2.1/32]")
	if err := inst.DetachAll(); err != nil {
		t.Fatal(err)
	}
	expect("[]")
}

// TestHandover ends a Run in favor of another one, which ends before it has seen that a VIP went in between. The address is withdrawn
// all the same, and only by the announcer that has announced it.
func TestHandover(t *testing.T) {
	one, two := vip(t, "192.0.2.1:80/tcp", "10.0.0.11"), vip(t, "192.0.2.2:80/tcp", "10.0.0.12")
	_ = newInstance(t, lbplane.Options{RingSize: 17}) // for its namespace
	inst, err := datapath.Attach(datapath.Options{Name: fmt.Sprintf("handover%d", os.Getpid()), Interfaces: []string{"lb1"}, Parts: []datapath.Part{
		lbplane.NewPart(lbplane.Options{RingSize: 17, Fill: Fill(State{VIPs: []VIP{one, two}})}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inst.DetachAll(); inst.Close() }()
	p, s := view(t, inst)
	next := errors.New("another Run goes on")
	h := &Handover{Succeeded: next}
	run := func(a Announcer, cause error, prepare func(*runner)) *runner {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		r := &runner{
			Options: Options{Instance: inst, Log: slog.New(slog.DiscardHandler), Announcer: a, Handover: h}, plane: p,
			health: &checks{results: map[lbplane.BackendID]health.Result{}}, failed: map[string]string{},
		}
		r.takeOver()
		if prepare != nil {
			prepare(r)
		}
		r.finish(ctx, func() {})
		return r
	}
	backend := s.VIPs[0].Backends[0].ID
	announced := func(r *runner) {
		r.announced = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")}
		r.upToDate, r.spoken = true, true
		r.health.results[backend] = health.Result{State: health.Down, Rising: true, Text: "no answer"}
	}
	for _, tt := range []struct {
		name, want string
		other      bool
	}{{"the same announcer", "[192.0.2.1/32]", false}, {"another announcer", "nothing", true}} {
		a := &lastSet{"nothing"}
		run(a, next, announced)
		if a.text != "nothing" {
			t.Errorf("%s: announced %s for a Run that others follow", tt.name, a.text)
		}
		_ = Edit(inst, func(s *State) error { _, err := s.DeleteVIP(two.Service); return err }) // the second time it is gone
		b := a
		if tt.other {
			b = &lastSet{"nothing"}
		}
		r := run(b, context.Canceled, nil)
		if b.text != tt.want {
			t.Errorf("%s: announced %s, want %s", tt.name, b.text, tt.want)
		}
		if got := r.health.results[backend]; !got.Rising || got.Text != "no answer" {
			t.Errorf("%s: result %+v", tt.name, got)
		}
		if r := run(b, context.Canceled, nil); r.spoken || len(r.health.results) > 0 {
			t.Errorf("%s: a Run that has ended for good leaves %v, %+v", tt.name, r.spoken, r.health.results)
		}
	}
}
