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

// settleBed is a VIP with two backends that are checked.
type settleBed struct {
	t        *testing.T
	w        settling
	s        State
	was      live
	findings map[lbplane.BackendID]health.Result
}

func newSettleBed(t *testing.T) *settleBed {
	v := vip(t, "192.0.2.1:80/tcp", "10.0.0.11", "10.0.0.12")
	v.Check = &health.Check{Type: health.TCP}
	return &settleBed{t: t, s: numbered(t, State{}, v), findings: make(map[lbplane.BackendID]health.Result)}
}

func (b *settleBed) backend(n int) lbplane.BackendID { return b.s.VIPs[0].Backends[n].ID }

// found is told what a check has found.
func (b *settleBed) found(n int, state health.State, rising bool) {
	b.findings[b.backend(n)] = health.Result{State: state, Rising: rising, Asked: time.Now()}
}

// want brings the state up to what has been found, and wants the VIP announced or not.
func (b *settleBed) want(announced bool) {
	b.t.Helper()
	now := allUp(&b.s)
	for backend, r := range b.findings {
		now.down[backend] = r.State == health.Down
	}
	b.w.update(&b.s, b.was, now)
	b.was = now
	got := b.w.prefixes(func(backend lbplane.BackendID) health.Result { return b.findings[backend] })
	want := []netip.Prefix{}
	if announced {
		want = append(want, netip.MustParsePrefix("192.0.2.1/32"))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("%v may be announced, want %v", got, want)
	}
}

// TestAnnounced: an address is announced while one of its VIPs is in service.
func TestAnnounced(t *testing.T) {
	s := numbered(t, State{}, vip(t, "192.0.2.1:80/tcp", "10.0.0.11"), vip(t, "192.0.2.1:53/udp", "10.0.0.12"), vip(t, "2001:db8::1/tcp", "10.0.0.11"))
	l := allUp(&s)
	var w settling
	expect := func(want string) {
		t.Helper()
		w.update(&s, live{}, l)
		if got := fmt.Sprint(w.prefixes(nil)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	expect("[192.0.2.1/32 2001:db8::1/128]")
	s.VIPs[0].Drained = true
	expect("[192.0.2.1/32 2001:db8::1/128]")
	s.VIPs[1].Backends[0].Weight = 0
	expect("[2001:db8::1/128]")
	s.VIPs[0].Drained = false
	expect("[192.0.2.1/32 2001:db8::1/128]")
	delete(l.routes, netip.MustParseAddr("10.0.0.11"))
	expect("[]")
}

// TestSettlingStart: a new VIP waits until each backend has been found up or down.
func TestSettlingStart(t *testing.T) {
	b := newSettleBed(t)
	b.want(false)
	b.found(0, health.Up, false)
	b.want(false)
	b.found(1, health.Down, false)
	b.want(true)
	b.found(1, health.Up, false)
	b.want(true)
}

// TestSettlingAfterRestart: what an earlier process has found is enough.
func TestSettlingAfterRestart(t *testing.T) {
	b := newSettleBed(t)
	b.findings[b.backend(0)] = health.Result{State: health.Up}
	b.findings[b.backend(1)] = health.Result{State: health.Down}
	b.was = allUp(&b.s)
	b.was.down[b.backend(1)] = true
	b.want(true)
}

// TestSettlingReturn: when all have been away, the first one back waits for the others, be they just not asked yet or
// just about to rise; and for no others than those that are to get flows.
func TestSettlingReturn(t *testing.T) {
	b := newSettleBed(t)
	b.found(0, health.Up, false)
	b.found(1, health.Up, false)
	b.want(true)
	b.found(0, health.Down, false)
	b.want(true)
	b.found(1, health.Down, false)
	b.want(false)

	b.found(0, health.Up, false)
	b.want(false) // the other one has not been asked since
	b.found(1, health.Down, true)
	b.want(false)
	b.found(1, health.Up, false)
	b.want(true)

	b.found(0, health.Down, false)
	b.found(1, health.Down, false)
	b.want(false)
	b.found(0, health.Up, false)
	b.want(false)
	b.found(1, health.Down, false)
	b.want(true) // it has failed again
	b.found(1, health.Down, true)
	b.want(true)

	b.found(0, health.Down, false)
	b.want(false)
	b.s.VIPs[0].Backends[1].Weight = 0
	b.found(0, health.Up, false)
	b.want(true)
	b.s.VIPs[0].Drained = true
	b.want(false)
	b.s.VIPs[0].Drained = false
	b.want(true)
}

// TestSettlingUnchecked: a VIP without a check waits for nothing.
func TestSettlingUnchecked(t *testing.T) {
	b := newSettleBed(t)
	b.s.VIPs[0].Check = nil
	b.want(true)
}
