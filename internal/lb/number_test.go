// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"testing"

	"culvert/internal/lb/lbplane"
)

// backend returns the ID of a backend of a VIP.
func (s *State) backend(t *testing.T, k, b string) lbplane.BackendID {
	t.Helper()
	for _, v := range s.VIPs {
		for _, r := range v.Backends {
			if v.Service.String() == k && r.Addr.String() == b {
				return r.ID
			}
		}
	}
	t.Fatalf("no %s of %s", b, k)
	return 0
}

// TestNumbers changes VIPs and backends, and checks their numbers and IDs.
func TestNumbers(t *testing.T) {
	const a, c = "192.0.2.1:80/tcp", "192.0.2.3:80/tcp"
	own := lbplane.NewBackendID
	first := numbered(t, State{}, vip(t, a, "10.0.0.11", "10.0.0.12"))
	if first.backend(t, a, "10.0.0.11") != own(0, 1) || first.backend(t, a, "10.0.0.12") != own(1, 1) {
		t.Errorf("got %+v", first)
	}
	// VIPs and backends keep their IDs, whatever their order and whatever else changes.
	second := numbered(t, first, vip(t, c, "10.0.0.12"), vip(t, a, "10.0.0.13", "10.0.0.12"))
	if second.backend(t, a, "10.0.0.12") != own(1, 1) || second.VIPs[1].Number != 0 || second.VIPs[0].Number != 1 {
		t.Errorf("got %+v", second)
	}
	// The number 0 is not used again while the ring of the state before may have it.
	if second.backend(t, c, "10.0.0.12") != own(2, 1) || second.backend(t, a, "10.0.0.13") != own(3, 1) {
		t.Errorf("got %+v", second)
	}
	// In the next state it is used again, with another generation.
	third := numbered(t, second, vip(t, a, "10.0.0.13", "10.0.0.12", "10.0.0.11"))
	if third.backend(t, a, "10.0.0.11") != own(0, 2) || third.backend(t, a, "10.0.0.13") != own(3, 1) {
		t.Errorf("got %+v", third)
	}
	// The generation after the last one is 1.
	third.Generations[2] = generations
	fourth := numbered(t, third, vip(t, a, "10.0.0.14"))
	if fourth.backend(t, a, "10.0.0.14") != own(2, 1) {
		t.Errorf("got %+v", fourth)
	}
	// Numbers and IDs in the new state are ignored.
	wrong := vip(t, a, "10.0.0.14")
	wrong.Number, wrong.Backends[0].ID = 9, own(9, 9)
	if fifth := numbered(t, fourth, wrong); fifth.VIPs[0].Number != 0 || fifth.backend(t, a, "10.0.0.14") != own(2, 1) {
		t.Errorf("got %+v", fifth)
	}
}

// TestNumbersRunOut replaces all VIPs and backends when there is no room for the old and the new ones together.
func TestNumbersRunOut(t *testing.T) {
	o := lbplane.Options{RingSize: 17, VIPs: 1, Backends: 2}
	var first State
	first.VIPs = []VIP{vip(t, "192.0.2.1:80/tcp", "10.0.0.11", "10.0.0.12")}
	if err := first.number(State{}, o); err != nil {
		t.Fatal(err)
	}
	next := State{VIPs: []VIP{vip(t, "192.0.2.2:80/tcp", "10.0.0.11", "10.0.0.12")}}
	if err := next.number(first, o); err != nil {
		t.Fatal(err)
	}
	if next.VIPs[0].Number != 0 || next.backend(t, "192.0.2.2:80/tcp", "10.0.0.12") != lbplane.NewBackendID(1, 2) {
		t.Errorf("got %+v", next)
	}
	next.VIPs[0].Backends = append(next.VIPs[0].Backends, vip(t, "192.0.2.2:80/tcp", "10.0.0.13").Backends...)
	if err := next.number(first, o); err == nil || err.Error() != "no number is left for backend 10.0.0.13 of VIP 192.0.2.2:80/tcp" {
		t.Errorf("got %v", err)
	}
}
