// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// wantAttributes waits until BIRD has a prefix with these attributes, as it writes them.
func (d *bird) wantAttributes(prefix string, want ...string) {
	d.t.Helper()
	eventually(d.t, "attributes of "+prefix, "", func() string {
		got := d.ask("show", "route", "all", "for", prefix)
		for _, w := range want {
			if !strings.Contains(got, "\t"+w+"\n") {
				return w + " is not in " + got
			}
		}
		return ""
	})
}

// TestAttributes configures attributes and next hops of prefixes.
func TestAttributes(t *testing.T) {
	b := newBed(t)
	b.machines[0].address(t, "cvr", "10.9.1.7/24", "fd09:1::7/64")
	router := b.bird(b.router, "10.9.1.254", birdSession("m1", "10.9.1.254", asRouter, "10.9.1.7", asMachine, ""))
	o := options(1, "10.9.1.254", asRouter)
	o.Communities, o.MED = []uint32{65535<<16 | 65281, 65001<<16 | 7}, 50
	n := &o.Neighbors[0]
	n.LocalAddress, n.NextHop4, n.NextHop6 = addr("10.9.1.7"), addr("10.9.1.1"), addr("fd09:1::7")
	s := b.speak(b.machines[0], o)
	s.set(vip4, vip6, "198.51.100.0/24")
	for prefix, hop := range map[string]string{vip4: "10.9.1.1", vip6: "fd09:1::7", "198.51.100.0/24": "10.9.1.1"} {
		router.wantAttributes(prefix, "BGP.origin: IGP", "BGP.as_path: 65001", "BGP.med: 50",
			"BGP.community: (65535,65281) (65001,7)")
		router.wantRoutes(prefix, hop)
	}
}

// TestOwnSystem has a router of the machine's own AS, which announces a prefix with a high local preference. The machine announces
// that prefix all the same.
func TestOwnSystem(t *testing.T) {
	b := newBed(t)
	session := birdSession("m1", "10.9.1.254", asRouter, "10.9.1.1", asRouter, "")
	session = strings.Replace(session, "export all;", "export filter { bgp_local_pref = 300; accept; };", 1)
	router := b.bird(b.router, "10.9.1.254", "protocol static { ipv4; route "+other4+" blackhole; }\n", session)
	o := options(1, "10.9.1.254", asRouter)
	o.ASN = asRouter
	s := b.speak(b.machines[0], o)
	s.set(vip4, vip6)
	router.wantAttributes(vip4, "BGP.as_path: ", "BGP.local_pref: 100", "BGP.next_hop: 10.9.1.1")
	router.wantRoutes(vip4, "10.9.1.1")
	router.wantRoutes(vip6, "fd09:1::1")
	router.awaitExports("3 exported")
	s.set(vip4, vip6, other4)
	router.wantAttributes(other4, "BGP.next_hop: 10.9.1.1")
}

// awaitExports waits until BIRD has announced a number of IPv4 prefixes to the machine, as "3 exported".
func (d *bird) awaitExports(want string) {
	d.t.Helper()
	eventually(d.t, "number of prefixes that BIRD announces", want, func() string {
		for _, line := range strings.Split(d.ask("show", "protocols", "all", "m1"), "\n") {
			if words := strings.Split(strings.TrimSpace(line), ", "); len(words) == 3 && strings.HasPrefix(words[0], "Routes:") {
				return words[1]
			}
		}
		return ""
	})
}

// TestTwoNeighbors has a router on the link and one behind it. Prefixes of the first are not passed on to the second, and no socket
// listens.
func TestTwoNeighbors(t *testing.T) {
	b := newBed(t)
	static := "protocol static { ipv4; route 198.51.100.0/24 blackhole; }\n"
	router := b.bird(b.router, "10.9.1.254", static, over4(1, asMachine, ""))
	far := b.bird(b.machines[1], "10.9.2.1", "protocol static { ipv4; route 10.9.1.0/24 via 10.9.2.254; }\n",
		birdSession("m1", "10.9.2.1", 65002, "10.9.1.1", asMachine, "multihop 2;"))
	o := options(1, "10.9.1.254", asRouter)
	o.Neighbors = append(o.Neighbors, Neighbor{Address: addr("10.9.2.1"), ASN: 65002, Multihop: 2, NextHop4: addr("10.9.1.77")})
	s := b.speak(b.machines[0], o)
	s.set(vip4)
	router.wantAttributes(vip4, "BGP.next_hop: 10.9.1.1")
	far.wantAttributes(vip4, "BGP.next_hop: 10.9.1.77")
	router.awaitExports("3 exported")
	s.set(vip4, other4)
	far.wantAttributes(other4, "BGP.next_hop: 10.9.1.77")
	if got := far.ask("show", "route", "for", "198.51.100.0/24"); !strings.Contains(got, "Network not found") {
		t.Errorf("the far router has a prefix of the near one:\n%s", got)
	}
	if got := s.tell("state").Neighbors[1]; got.Address != addr("10.9.2.1") || got.ASN != 65002 || got.State != established || got.Announced != 2 {
		t.Errorf("second neighbor: %+v", got)
	}
	check(t, netns.Set(b.machines[0].ns))
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		text, err := os.ReadFile("/proc/thread-self/net/" + table)
		check(t, err)
		for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
			if words := strings.Fields(line); words[3] != "01" {
				t.Errorf("a socket that is not one of a session: %s %s", table, line)
			}
		}
	}
}

// TestPassword has sessions with the right password and with a wrong one.
func TestPassword(t *testing.T) {
	b := newBed(t)
	router := b.bird(b.router, "10.9.1.254", over4(1, asMachine, `password "right";`), over4(2, asMachine, `password "right";`))
	for n, password := range []string{"right", "wrong"} {
		o := options(n+1, fmt.Sprintf("10.9.%d.254", n+1), asRouter)
		o.Neighbors[0].Password = password
		s := b.speak(b.machines[n], o)
		s.set(vip4)
		s.await(map[string]string{"right": "established 1", "wrong": "active 0 no connection: i/o timeout"}[password])
	}
	router.wantRoutes(vip4, "10.9.1.1")
}

// TestTTLSecurity has a session with a router that has TTL security on, and none with one whose packets have the usual TTL of 1,
// which the kernel drops.
func TestTTLSecurity(t *testing.T) {
	b := newBed(t)
	router := b.bird(b.router, "10.9.1.254", over4(1, asMachine, `ttl security on;`), over4(2, asMachine, ""))
	var speakers []*speaker
	for n := range b.machines {
		o := options(n+1, fmt.Sprintf("10.9.%d.254", n+1), asRouter)
		o.Neighbors[0].TTLSecurity = true
		s := b.speak(b.machines[n], o)
		s.set(vip4)
		speakers = append(speakers, s)
	}
	speakers[0].await("established 1")
	check(t, netns.Set(b.machines[1].ns))
	eventually(t, "packets dropped for their TTL", "true", func() string { return fmt.Sprint(netstat(t, "TCPMinTTLDrop") > 0) })
	if state := speakers[1].state(); strings.HasPrefix(state, "established") {
		t.Errorf("a session with TTL 1: %s", state)
	}
	router.wantRoutes(vip4, "10.9.1.1")
}

// netstat reads a counter of TCP in the thread's network namespace, in the form of proc_net(5): a line of names, then
// one of values.
func netstat(t *testing.T, name string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/thread-self/net/netstat")
	check(t, err)
	lines := strings.Split(string(b), "\n")
	for n := 0; n+1 < len(lines); n += 2 {
		if at := slices.Index(strings.Fields(lines[n]), name); at >= 0 {
			value, err := strconv.Atoi(strings.Fields(lines[n+1])[at])
			check(t, err)
			return value
		}
	}
	t.Fatalf("the kernel does not count %s", name)
	return 0
}

// TestWrongASN has sessions in which one side has a wrong AS number of the other.
func TestWrongASN(t *testing.T) {
	for _, tt := range []struct {
		name         string
		asn, machine int
		want         string
	}{
		{"the neighbor's", 65099, asMachine, "active 0 the neighbor has another AS number than it should: compare both sides"},
		{"ours", asRouter, 65098, "active 0 the neighbor refused the session: compare the AS numbers on both sides"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			router := b.bird(b.router, "10.9.1.254", over4(1, tt.machine, ""))
			s := b.speak(b.machines[0], options(1, "10.9.1.254", uint32(tt.asn)))
			s.set(vip4)
			s.await(tt.want)
			// Each attempt fails for the same reason, which is logged once.
			eventually(t, "the next attempt", "true", func() string {
				log, err := os.ReadFile(router.file("log"))
				check(t, err)
				return fmt.Sprint(strings.Count(string(log), "Bad peer AS") > 1)
			})
			if got := strings.Count(s.stderr.String(), "level=WARN"); got != 1 {
				t.Errorf("%d warnings:\n%s", got, s.stderr.String())
			}
		})
	}
}

// TestFamilies has prefixes that cannot be announced to a neighbor. The state says why.
func TestFamilies(t *testing.T) {
	notTaken := func(t *testing.T, restart time.Duration) {
		b := newBed(t)
		session := strings.Replace(over4(1, asMachine, ""), "ipv6 { import all; export all; };", "", 1)
		router := b.bird(b.router, "10.9.1.254", session)
		s := b.speak(b.machines[0], restarting("10.9.1.254", restart))
		s.set(vip4, vip6)
		s.await("established 1 the neighbor does not take IPv6 prefixes: enable that family in its session")
		router.wantRoutes(vip4, "10.9.1.1")
		s.set(vip4)
		s.await("established 1")
	}
	t.Run("not taken", func(t *testing.T) { notTaken(t, 0) })
	t.Run("not taken, with graceful restart", func(t *testing.T) { notTaken(t, time.Minute) })
	t.Run("a session for each", func(t *testing.T) {
		b := newBed(t)
		const both4, both6 = "ipv4 { import all; export all; };", "ipv6 { import all; export all; };"
		session4 := strings.Replace(over4(1, asMachine, ""), both6, "", 1)
		session6 := strings.Replace(strings.Replace(over6(1, asMachine, ""), both4, "", 1), "bgp m1 ", "bgp m6 ", 1)
		router := b.bird(b.router, "10.9.1.254", session4, session6)
		o := options(1, "10.9.1.254", asRouter)
		o.Neighbors = append(o.Neighbors, options(1, "fd09:1::fe", asRouter).Neighbors...)
		s := b.speak(b.machines[0], o)
		s.set(vip4, vip6)
		router.wantRoutes(vip4, "10.9.1.1")
		router.wantRoutes(vip6, "fd09:1::1")
		s.await("established 1")
		eventually(t, "the other session", "established 1 ", func() string {
			n := s.tell("state").Neighbors[1]
			return fmt.Sprintf("%s %d %s", n.State, n.Announced, n.LastError)
		})
		carries := func(want string) {
			t.Helper()
			got := ""
			for _, n := range s.tell("state").Neighbors {
				got += fmt.Sprintf(" %v/%v", n.Carries4, n.Carries6)
			}
			if got != want {
				t.Errorf("the sessions carry IPv4/IPv6%s, want%s", got, want)
			}
		}
		carries(" true/false false/true")
		// A session with a next hop for the other family is meant to carry that family too.
		s.kill()
		o.Neighbors[0].NextHop6 = netip.MustParseAddr("fd09:1::1")
		s = b.speak(b.machines[0], o)
		s.set(vip4, vip6)
		s.await("established 1 the neighbor does not take IPv6 prefixes: enable that family in its session")
		carries(" true/true false/true")
	})
	t.Run("no next hop", func(t *testing.T) {
		b := newBed(t)
		router := b.bird(b.router, "10.9.1.254", over6(1, asMachine, ""))
		m := b.machines[0]
		link, err := m.links.LinkByName("cvr")
		check(t, err)
		own := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 9, 1, 1), Mask: net.CIDRMask(24, 32)}}
		check(t, m.links.AddrDel(link, own))
		s := b.speak(m, options(1, "fd09:1::fe", asRouter))
		s.set(vip4, vip6)
		s.await("established 1 no next hop for IPv4 prefixes: the interface with fd09:1::1 has none that could be it: set it")
		router.wantRoutes(vip6, "fd09:1::1")
		check(t, m.links.AddrAdd(link, own))
		s.set(vip4, vip6)
		s.await("established 2")
		router.wantRoutes(vip4, "10.9.1.1")
	})
}
