// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"testing"

	"culvert/internal/datapath"
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
