// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"culvert/internal/lb/health"
	"culvert/internal/lb/lbplane"
)

// settleBed is a VIP with two checked backends.
type settleBed struct {
	t        *testing.T
	settling settling
	s        State
	before   live
	results  map[lbplane.BackendID]health.Result
}

func newSettleBed(t *testing.T) *settleBed {
	v := vip(t, "192.0.2.1:80/tcp", "10.0.0.11", "10.0.0.12")
	v.Check = &health.Check{Type: health.TCP}
	return &settleBed{t: t, s: numbered(t, State{}, v), results: make(map[lbplane.BackendID]health.Result)}
}

func (b *settleBed) backend(n int) lbplane.BackendID { return b.s.VIPs[0].Backends[n].ID }

// result stores a new result of the checks of backend n.
func (b *settleBed) result(n int, state health.State, rising bool) {
	b.results[b.backend(n)] = health.Result{State: state, Rising: rising, Asked: time.Now()}
}

// want updates the state with the results, and checks whether the VIP is announced.
func (b *settleBed) want(when string, announced bool) {
	b.t.Helper()
	now := allUp(&b.s)
	for backend, r := range b.results {
		now.down[backend] = r.State == health.Down
	}
	b.settling.update(&b.s, b.before, now)
	b.before = now
	got := b.settling.prefixes(func(backend lbplane.BackendID) health.Result { return b.results[backend] })
	want := []netip.Prefix{}
	if announced {
		want = append(want, netip.MustParsePrefix("192.0.2.1/32"))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("%s: %v may be announced, want %v", when, got, want)
	}
}

// TestAnnounced announces an address while one of its VIPs is in service.
func TestAnnounced(t *testing.T) {
	s := numbered(t, State{}, vip(t, "192.0.2.1:80/tcp", "10.0.0.11"), vip(t, "192.0.2.1:53/udp", "10.0.0.12"), vip(t, "2001:db8::1/tcp", "10.0.0.11"))
	l := allUp(&s)
	var w settling
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"all in service", func() {}, "[192.0.2.1/32 2001:db8::1/128]"},
		{"the first VIP is drained", func() { s.VIPs[0].Drained = true }, "[192.0.2.1/32 2001:db8::1/128]"},
		{"the second one has no backend", func() { s.VIPs[1].Backends[0].Weight = 0 }, "[2001:db8::1/128]"},
		{"the first one is not drained", func() { s.VIPs[0].Drained = false }, "[192.0.2.1/32 2001:db8::1/128]"},
		{"no next hop", func() { delete(l.routes, netip.MustParseAddr("10.0.0.11")) }, "[]"},
	} {
		step.change()
		w.update(&s, live{}, l)
		if got := fmt.Sprint(w.prefixes(nil)); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
}

// TestSettlingStart has a new VIP, which is announced once each backend is up or down.
func TestSettlingStart(t *testing.T) {
	b := newSettleBed(t)
	b.want("no results", false)
	b.result(0, health.Up, false)
	b.want("one result", false)
	b.result(1, health.Down, false)
	b.want("both results", true)
	b.result(1, health.Up, false)
	b.want("both up", true)
}

// TestSettlingAfterRestart has results of an earlier process, which are enough.
func TestSettlingAfterRestart(t *testing.T) {
	b := newSettleBed(t)
	b.results[b.backend(0)] = health.Result{State: health.Up}
	b.results[b.backend(1)] = health.Result{State: health.Down}
	b.before = allUp(&b.s)
	b.before.down[b.backend(1)] = true
	b.want("results from before", true)
}

// TestSettlingReturn has all backends fail. When the first one is up again, the VIP waits for those that have not been probed
// since and for those that are rising, but not for backends that get no flows.
func TestSettlingReturn(t *testing.T) {
	type result struct {
		backend int
		state   health.State
		rising  bool
	}
	b := newSettleBed(t)
	for _, step := range []struct {
		name      string
		results   []result
		announced bool
	}{
		{"both up", []result{{0, health.Up, false}, {1, health.Up, false}}, true},
		{"one fails", []result{{0, health.Down, false}}, true},
		{"the other one too", []result{{1, health.Down, false}}, false},

		{"one is up again, the other not probed since", []result{{0, health.Up, false}}, false},
		{"the other is rising", []result{{1, health.Down, true}}, false},
		{"both are up again", []result{{1, health.Up, false}}, true},

		{"both fail at once", []result{{0, health.Down, false}, {1, health.Down, false}}, false},
		{"one is up, the other not probed since", []result{{0, health.Up, false}}, false},
		{"the other fails its next probe", []result{{1, health.Down, false}}, true},
		{"the other is rising while the VIP is announced", []result{{1, health.Down, true}}, true},
		{"both are down", []result{{0, health.Down, false}}, false},
	} {
		for _, r := range step.results {
			b.result(r.backend, r.state, r.rising)
		}
		b.want(step.name, step.announced)
	}
	b.s.VIPs[0].Backends[1].Weight = 0
	b.result(0, health.Up, false)
	b.want("one is up, the other has weight 0", true)
	b.s.VIPs[0].Drained = true
	b.want("drained", false)
	b.s.VIPs[0].Drained = false
	b.want("not drained any more", true)
}

// TestSettlingUnchecked has a VIP without a check, which is announced at once.
func TestSettlingUnchecked(t *testing.T) {
	b := newSettleBed(t)
	b.s.VIPs[0].Check = nil
	b.want("no check", true)
}
