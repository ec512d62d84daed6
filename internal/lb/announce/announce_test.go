// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

const (
	asRouter  = 65000
	asMachine = 65001
	vip4      = "192.0.2.1/32"
	other4    = "192.0.2.2/32"
	vip6      = "2001:db8::1/128"
	// long is a hold time that no test waits for. So a route that disappears was withdrawn.
	long = 600 * time.Second
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// options returns the options of machine n (1 or 2) with one neighbor.
func options(n int, neighbor string, as uint32) Options {
	return Options{ASN: asMachine, RouterID: addr(fmt.Sprintf("10.9.%d.1", n)), HoldTime: long,
		Neighbors: []Neighbor{{Address: addr(neighbor), ASN: as}}}
}

// over4 returns the configuration of the router's session with machine n, between IPv4 addresses. more is added to it.
func over4(n, as int, more string) string {
	return birdSession(fmt.Sprintf("m%d", n), fmt.Sprintf("10.9.%d.254", n), asRouter, fmt.Sprintf("10.9.%d.1", n), as, more)
}

// over6 is over4 with IPv6 addresses.
func over6(n, as int, more string) string {
	return birdSession(fmt.Sprintf("m%d", n), fmt.Sprintf("fd09:%d::fe", n), asRouter, fmt.Sprintf("fd09:%d::1", n), as, more)
}

// TestAnnounce announces and withdraws prefixes of both families, over a session of each family.
func TestAnnounce(t *testing.T) {
	for _, tt := range []struct{ name, neighbor, session string }{
		{"over IPv4", "10.9.1.254", over4(1, asMachine, "hold time 600;")},
		{"over IPv6", "fd09:1::fe", over6(1, asMachine, "hold time 600;")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			router := b.bird(b.router, "10.9.1.254", tt.session)
			s := b.speak(b.machines[0], options(1, tt.neighbor, asRouter))
			s.set(vip4, vip6)
			s.await("established 2")
			router.wantRoutes(vip4, "10.9.1.1")
			router.wantRoutes(vip6, "fd09:1::1")

			s.set(other4, vip6, other4)
			router.wantRoutes(other4, "10.9.1.1")
			router.wantRoutes(vip4, "")
			router.wantRoutes(vip6, "fd09:1::1")
			if got := fmt.Sprint(s.tell("state").Announced); got != "["+other4+" "+vip6+"]" {
				t.Errorf("announced %s", got)
			}
			s.await("established 2")
			updates := router.updates()
			s.set(vip6, other4)
			s.set(vip4, vip6, other4)
			router.wantRoutes(vip4, "10.9.1.1")
			if got := router.updates(); got != updates+1 {
				t.Errorf("%d updates for one new prefix among three", got-updates)
			}
			s.set()
			router.wantRoutes(vip4, "")
			router.wantRoutes(vip6, "")
			s.await("established 0")
		})
	}
}

// updates returns the number of prefixes in all updates that the router has received.
func (d *bird) updates() (n int) {
	d.t.Helper()
	for _, line := range strings.Split(d.ask("show", "protocols", "all", "m1"), "\n") {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "Import updates:"); ok {
			var one int
			if _, err := fmt.Sscan(text, &one); err != nil {
				d.t.Fatal(err)
			}
			n += one
		}
	}
	return n
}

// TestEnd ends a speaker in three ways. The router drops the routes at once, long before the hold time has passed.
func TestEnd(t *testing.T) {
	for _, tt := range []struct {
		name, text string // in the router's description of the session
		end        func(*speaker)
	}{
		{"closed", "Received: Peer de-configured", func(s *speaker) {
			if a := s.tell("close"); a.Error != "" || a.Neighbors[0].State != "idle" || a.Neighbors[0].Announced != 0 || len(a.Announced) != 0 {
				s.t.Errorf("after Close: %+v", a)
			}
			if a := s.tell("set " + vip4); a.Error != "announce prefixes: "+errClosed.Error() {
				s.t.Errorf("Set after Close: %q", a.Error)
			}
			if a := s.tell("close"); a.Error != "" {
				s.t.Errorf("closed again: %s", a.Error)
			}
		}},
		{"canceled", "Received: Peer de-configured", func(s *speaker) { s.tell("cancel") }},
		{"killed", "Socket: Connection ", (*speaker).kill},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			router := b.bird(b.router, "10.9.1.254", over4(1, asMachine, "hold time 600;"))
			s := b.speak(b.machines[0], options(1, "10.9.1.254", asRouter))
			s.set(vip4, vip6)
			router.wantRoutes(vip4, "10.9.1.1")
			router.wantRoutes(vip6, "fd09:1::1")
			tt.end(s)
			router.wantRoutes(vip4, "")
			router.wantRoutes(vip6, "")
			if got := router.ask("show", "protocols", "all", "m1"); !strings.Contains(got, tt.text) {
				t.Errorf("BIRD does not report %q:\n%s", tt.text, got)
			}
			for _, text := range []string{"level=WARN", "level=ERROR", "Topic="} {
				if strings.Contains(s.stderr.String(), text) {
					t.Errorf("%s in the log:\n%s", text, s.stderr.String())
				}
			}
		})
	}
}

// TestRouterRestarts kills the router and starts it again.
func TestRouterRestarts(t *testing.T) {
	b := newBed(t)
	router := b.bird(b.router, "10.9.1.254", over4(1, asMachine, ""))
	o := options(1, "10.9.1.254", asRouter)
	o.HoldTime = 0
	s := b.speak(b.machines[0], o)
	s.set(vip4, vip6)
	router.wantRoutes(vip6, "fd09:1::1")
	if got := router.ask("show", "protocols", "all", "m1"); !strings.Contains(got, "/9\n") || !strings.Contains(got, "Keepalive timer") {
		t.Errorf("no hold time of 9 s:\n%s", got)
	}
	router.kill()
	s.await("active 0 no connection: connection refused")
	s.set(other4, vip6)
	router.start()
	router.wantRoutes(other4, "10.9.1.1")
	router.wantRoutes(vip6, "fd09:1::1")
	router.wantRoutes(vip4, "")
	s.await("established 2")
	before := s.tell("state").Neighbors[0].Since
	if again := s.tell("state").Neighbors[0].Since; before != again || time.Since(before) > patience {
		t.Errorf("established since %v, then %v", before, again)
	}
	for text, want := range map[string]int{"BGP session established": 2, "BGP session lost": 1} {
		if got := strings.Count(s.stderr.String(), text); got != want {
			t.Errorf("%q is in the log %d times, want %d", text, got, want)
		}
	}
}

// TestTwoMachines announces the same prefixes from two machines. The router has routes by both until one ends.
func TestTwoMachines(t *testing.T) {
	b := newBed(t)
	router := b.bird(b.router, "10.9.1.254", over4(1, asMachine, ""), over4(2, asMachine, ""))
	b.speak(b.machines[0], options(1, "10.9.1.254", asRouter)).set(vip4, vip6)
	s := b.speak(b.machines[1], options(2, "10.9.2.254", asRouter))
	s.set(vip4, vip6)
	router.wantRoutes(vip4, "10.9.1.1 10.9.2.1")
	router.wantRoutes(vip6, "fd09:1::1 fd09:2::1")
	s.tell("close")
	router.wantRoutes(vip4, "10.9.1.1")
	router.wantRoutes(vip6, "fd09:1::1")
}
