// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"slices"
	"testing"
	"time"

	"culvert/internal/route"
)

// change is a change of the host's configuration while culvert runs.
type change struct {
	name    string
	lines   string
	sysctls [][2]string
	// up are the ports that come up again.
	up []int
	// small is the port whose MTU becomes 1300, down the one that goes down. 0 stands for none.
	small, down int
}

var changes = []change{
	{name: "no forwarding of IPv4 from a port", sysctls: [][2]string{{"ipv4/conf/p0/forwarding", "0"}}},
	{name: "forwarding of IPv4 again", sysctls: [][2]string{{"ipv4/conf/p0/forwarding", "1"}}},
	{name: "no forwarding of IPv6", sysctls: [][2]string{{"ipv6/conf/all/forwarding", "0"}}},
	{name: "forwarding of IPv6 again", sysctls: [][2]string{{"ipv6/conf/all/forwarding", "1"}}},
	{name: "sources are checked", sysctls: [][2]string{{"ipv4/conf/p1/rp_filter", "1"}, {"ipv4/conf/p2/rp_filter", "2"}}},
	{name: "sources are not checked", sysctls: [][2]string{{"ipv4/conf/p1/rp_filter", "0"}, {"ipv4/conf/p2/rp_filter", "0"}}},
	{name: "paths by ports", sysctls: [][2]string{{"ipv4/fib_multipath_hash_policy", "1"}, {"ipv6/fib_multipath_hash_policy", "1"}}},
	{name: "paths by addresses", sysctls: [][2]string{{"ipv4/fib_multipath_hash_policy", "0"}, {"ipv6/fib_multipath_hash_policy", "0"}}},
	{name: "a neighbor has another address", lines: "neigh replace 10.1.1.3 lladdr 02:00:00:00:11:77 dev p1 nud permanent\n" +
		"neigh replace fd00:1:1::3 lladdr 02:00:00:00:11:77 dev p1 nud permanent\n" +
		"neigh replace fe80::2:3 lladdr 02:00:00:00:11:78 dev p2 nud permanent\n"},
	{name: "neighbors are gone", lines: "neigh del 10.1.1.4 dev p1\nneigh del fd00:1:1::4 dev p1\nneigh del fe80::1:4 dev p1\n"},
	{name: "a smaller MTU", lines: "link set p1 mtu 1300\n", small: 1},
	{name: "another MAC of a port", lines: "link set p2 address 02:00:00:00:01:a2\n"},
	{name: "the MAC of before", lines: "link set p2 address 02:00:00:00:01:02\n"},
	{name: "more addresses", lines: "addr add 10.1.1.6/32 dev p0\naddr add fd00:1:1::6/128 nodad dev p0\n" +
		"addr add 23.0.0.1/8 dev p2\naddr add 2001:db8:5000::1/36 nodad dev p2\n"},
	{name: "these addresses are gone", lines: "addr del 10.1.1.6/32 dev p0\naddr del fd00:1:1::6/128 dev p0\n" +
		"addr del 23.0.0.1/8 dev p2\naddr del 2001:db8:5000::1/36 dev p2\n"},
	{name: "other next hops", lines: "nexthop replace id 1 via 10.1.2.8 dev p2\nnexthop replace id 2 via 10.1.0.8 dev p0\n" +
		"nexthop replace id 101 via fd00:1:2::8 dev p2\nnexthop replace id 102 via fd00:1::8 dev p0\n"},
	{name: "next hops are gone", lines: "nexthop del id 3\nnexthop del id 103\n"},
	{name: "a rule", lines: "rule add pref 500 to 20.0.0.0/9 table 100\nroute add 20.0.0.0/9 via 10.1.2.7 dev p2 table 100\n"},
	{name: "no rule", lines: "rule del pref 500\n"},
	{name: "a table emptied", lines: "route flush table 254 proto boot root 20.0.0.0/9\n"},
	{name: "a port down", lines: "link set p1 down\n", down: 1},
	{name: "the port up again", lines: "link set p1 up\naddr add fd00:1:1::1/64 nodad dev p1\naddr add fe80::1:1/64 nodad dev p1\n", up: []int{1}},
	{name: "IPv6 off on a port", sysctls: [][2]string{{"ipv6/conf/p2/disable_ipv6", "1"}}},
}

// commonKinds are the kinds of packets that show whether culvert has followed a change.
var commonKinds = []string{"4 plain", "4 connected", "4 ttl", "4 around the MTU", "4 any source", "4 sent elsewhere", "4 no route",
	"6 plain", "6 connected", "6 hop limit", "6 around the MTU", "6 any source", "6 sent elsewhere", "6 no route"}

// TestChanges compares the routers after each of many changes of the host. The fast path must follow changes that the kernel
// notifies of within stale, and other settings at some time.
func TestChanges(t *testing.T) {
	tr := newTrial(t, scenario{name: "changes", simple: true}, 11, func(w *twin) *culvert { return attach(w, smallMirror) })
	tr.fast.startControlPlane(route.Options{})
	var kinds []kind
	for _, k := range slices.Concat(kinds4, kinds6) {
		if slices.Contains(commonKinds, k.name) {
			kinds = append(kinds, k)
		}
	}
	for _, ch := range changes {
		for _, w := range []*twin{tr.kernel, tr.fast.twin} {
			w.enter()
			w.try(ch.lines)
			for _, s := range ch.sysctls {
				w.set("net/"+s[0], s[1])
			}
			for _, p := range ch.up {
				w.awaitUp(p)
			}
		}
		if ch.small != 0 {
			tr.g.room[ch.small] = 1300
		}
		time.Sleep(stale)
		var c *judge
		for end := time.Now().Add(patience / 10); ; {
			c = newJudge(t, tr.kernel, tr.g)
			c.takes, c.explain = flowNone, tr.fast.explain
			if ch.down != 0 {
				c.down = []int{ch.down}
			}
			for _, k := range kinds {
				c.try(k, 40, tr.fast.fate)
			}
			if len(c.counts) == 0 || ch.sysctls == nil || time.Now().After(end) {
				break
			}
		}
		for _, key := range sortedKeys(c.counts) {
			t.Errorf("%s: %d times %s", ch.name, c.counts[key], key)
		}
		for _, complaint := range c.complaints[:min(1, len(c.complaints))] {
			t.Log(complaint)
		}
		kernel, fast := 0, 0
		for _, n := range c.tallies {
			kernel += n.forwarded
			fast += n.fast
		}
		t.Logf("%s: %d of %d packets forwarded", ch.name, fast, kernel)
	}
}
