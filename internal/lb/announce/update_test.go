// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// birdTimes makes BIRD tell to the millisecond since when a session is as it is.
const birdTimes = "timeformat protocol iso long ms;\n"

// since returns since when a session of BIRD is established, "" if it is not.
func (d *bird) since(session string) string {
	for _, line := range strings.Split(d.ask("show", "protocols", session), "\n") {
		if words := strings.Fields(line); len(words) > 6 && words[0] == session && words[6] == "Established" {
			return words[4] + " " + words[5]
		}
	}
	return ""
}

// sameTime tells whether two times of BIRD are the same. It works them out anew from two clocks each time.
func sameTime(a, b string) bool {
	const layout = "2006-01-02 15:04:05.000"
	x, errA := time.Parse(layout, a)
	y, errB := time.Parse(layout, b)
	return errA == nil && errB == nil && x.Sub(y).Abs() < 100*time.Millisecond
}

// farSession is a session of a BIRD on machine 2 with machine 1.
var farSession = birdSession("m1", "10.9.2.1", 65002, "10.9.1.1", asMachine, "multihop 2;")

// farNeighbor is the BIRD with farSession.
func farNeighbor() Neighbor {
	return Neighbor{Address: addr("10.9.2.1"), ASN: 65002, Multihop: 2, NextHop4: addr("10.9.1.77")}
}

// TestUpdateNeighbors adds a neighbor, takes it out, and adds it again at once. The session with the other one stays.
func TestUpdateNeighbors(t *testing.T) {
	for _, within := range []time.Duration{0, 10 * time.Minute} {
		t.Run(fmt.Sprint("graceful restart ", within), func(t *testing.T) {
			b := newBed(t)
			router := b.bird(b.router, "10.9.1.254", birdTimes, over4(1, asMachine, "hold time 600;"))
			far := b.bird(b.machines[1], "10.9.2.1", "protocol static { ipv4; route 10.9.1.0/24 via 10.9.2.254; }\n", farSession)
			one := restarting("10.9.1.254", within)
			s := b.speak(b.machines[0], one)
			s.set(vip4, vip6)
			s.await("established 2")
			router.wantRoutes(vip4, "10.9.1.1")
			router.wantRoutes(vip6, "fd09:1::1")
			since, lost := router.since("m1"), b.router.watch(t)

			two := one
			two.Neighbors = append(slices.Clone(one.Neighbors), farNeighbor())
			s.update(two)
			far.wantAttributes(vip4, "BGP.next_hop: 10.9.1.77")
			wrong := two
			wrong.Neighbors = append(slices.Clone(two.Neighbors), two.Neighbors[0])
			if a := s.tell("update " + asJSON(t, wrong)); a.Error != "BGP neighbor 10.9.1.254: it is there twice" || len(a.Neighbors) != 2 {
				t.Errorf("error %q, neighbors %+v", a.Error, a.Neighbors)
			}
			s.set(vip4, vip6, other4)
			far.wantAttributes(other4, "BGP.next_hop: 10.9.1.77")

			s.update(one)
			s.update(two)
			far.wantAttributes(other4, "BGP.next_hop: 10.9.1.77")
			eventually(t, "the far session", "established 3", func() string {
				n := s.tell("state").Neighbors[1]
				return fmt.Sprint(n.State, " ", n.Announced)
			})
			s.update(one)
			eventually(t, "the far router's next hops", "", func() string { return far.hops(vip4) + far.hops(other4) })
			if n := s.tell("state").Neighbors; len(n) != 1 {
				t.Errorf("neighbors %+v", n)
			}
			s.set(vip4, vip6)
			router.wantRoutes(other4, "")
			if got := lost(); !slices.Equal(got, []string{other4}) {
				t.Errorf("the router has lost %v", got)
			}
			if now := router.since("m1"); !sameTime(now, since) {
				t.Errorf("the session with the router is established since %s, and was since %s", now, since)
			}
			if log := s.stderr.String(); strings.Contains(log, "session lost") {
				t.Error("a session that was ended is logged as lost")
			}
		})
	}
}

// TestUpdateParameters changes parameters of a session. It goes on if it can.
func TestUpdateParameters(t *testing.T) {
	for _, tt := range []struct {
		name       string
		within     time.Duration
		change     func(*Options)
		hop        string
		attributes []string
		goesOn     bool
		lost       []string
	}{
		{"communities", 0, func(o *Options) { o.Communities = []uint32{65001<<16 | 9} }, "10.9.1.1", []string{"BGP.community: (65001,9)"}, true, nil},
		{"MED, graceful", time.Minute, func(o *Options) { o.MED = 70 }, "10.9.1.1", []string{"BGP.med: 70"}, true, nil},
		{"nothing", 0, func(*Options) {}, "10.9.1.1", nil, true, nil},
		{"next hop", 0, func(o *Options) { o.Neighbors[0].NextHop4 = addr("10.9.1.77") }, "10.9.1.77", nil, true, nil},
		{"hold time", 0, func(o *Options) { o.HoldTime = 90 * time.Second }, "10.9.1.1", nil, false, []string{vip4, vip6}},
		{"hold time, graceful", time.Minute, func(o *Options) { o.HoldTime = 90 * time.Second }, "10.9.1.1", nil, false, nil},
		{"local address, graceful", time.Minute, func(o *Options) { o.Neighbors[0].LocalAddress = addr("10.9.1.1") }, "10.9.1.1", nil, false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			router := b.bird(b.router, "10.9.1.254", birdTimes, over4(1, asMachine, "hold time 600;"))
			o := restarting("10.9.1.254", tt.within)
			s := b.speak(b.machines[0], o)
			s.set(vip4, vip6)
			s.await("established 2")
			router.wantRoutes(vip4, "10.9.1.1")
			router.wantRoutes(vip6, "fd09:1::1")
			since, lost := router.since("m1"), b.router.watch(t)
			tt.change(&o)
			s.update(o)
			if !tt.goesOn {
				eventually(t, "another session", "true", func() string {
					now := router.since("m1")
					return fmt.Sprint(now != "" && !sameTime(now, since))
				})
			}
			s.await("established 2")
			router.wantAttributes(vip4, tt.attributes...)
			router.wantRoutes(vip4, tt.hop)
			router.wantRoutes(vip6, "fd09:1::1")
			if now := router.since("m1"); tt.goesOn && !sameTime(now, since) {
				t.Errorf("the session is established since %s, and was since %s", now, since)
			}
			got := lost()
			slices.Sort(got)
			if !slices.Equal(got, tt.lost) {
				t.Errorf("the router has lost %v, want %v", got, tt.lost)
			}
		})
	}
}

// TestUpdateClosed updates a speaker that is closed.
func TestUpdateClosed(t *testing.T) {
	s, err := Start(t.Context(), options(1, "127.0.0.99", asRouter))
	check(t, err)
	check(t, s.Close(t.Context()))
	if err := s.Update(options(1, "127.0.0.99", asRouter)); fmt.Sprint(err) != "change the BGP sessions: the speaker is closed" {
		t.Errorf("error is %v", err)
	}
}
