// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"culvert/internal/lb/lbplane"
)

// TestCount wants the states of backends to tell what is known: that of their checks, and nothing of those without.
func TestCount(t *testing.T) {
	checked := vip(t, "192.0.2.1:80/tcp", "10.0.0.11", "10.0.0.12", "10.0.0.13")
	checked.Check = &Check{Type: "tcp", Interval: time.Second, Timeout: 100 * time.Millisecond, Rise: 1, Fall: 1}
	checked.Backends[2].Weight, checked.Backends[2].Drained = 5, true
	unchecked := vip(t, "192.0.2.9/udp", "10.0.0.11")
	inst := newInstance(t, lbplane.Options{RingSize: 17, Flows: 1000, Fill: Fill(State{VIPs: []VIP{unchecked, checked}})})
	p, s := view(t, inst)
	for _, v := range s.VIPs {
		for n, state := range []lbplane.HealthState{lbplane.Down, lbplane.Up} {
			if n < len(v.Backends) { // also what an earlier check of the other VIP has left
				if err := p.SetHealth(lbplane.Health{Backend: v.Backends[n].ID, State: state, Checks: 7, Failures: 2}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	look := func() (lines []string) {
		t.Helper()
		c, err := count(inst)
		if err != nil {
			t.Fatal(err)
		}
		if c.Options.Flows != 1000 || c.Flows != 0 || c.Memory == 0 || c.BGP {
			t.Errorf("got %+v", c)
		}
		for _, v := range c.VIPs {
			lines = append(lines, fmt.Sprint(v.Name, " served=", v.Served))
			for _, b := range v.Backends {
				lines = append(lines, fmt.Sprintf("%s %s %d of %d, weight %d, resolved=%v", b.Addr, b.State, b.Failures, b.Checks, b.Weight, b.Resolved))
			}
		}
		return lines
	}
	want := []string{
		"192.0.2.1:80/tcp served=false", "10.0.0.11 down 2 of 7, weight 1, resolved=false", "10.0.0.12 up 2 of 7, weight 1, resolved=false",
		"10.0.0.13 unknown 0 of 0, weight 0, resolved=false",
		"192.0.2.9/udp served=false", "10.0.0.11 unchecked 2 of 7, weight 1, resolved=false",
	}
	if got := look(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	resolve(t, inst)
	if got := look(); got[0] != "192.0.2.1:80/tcp served=true" || got[1] != "10.0.0.11 down 2 of 7, weight 1, resolved=true" {
		t.Errorf("with next hops: %q", got)
	}
}
