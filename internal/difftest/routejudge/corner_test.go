// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"encoding/binary"
	"testing"
	"time"

	"culvert/internal/route"
)

// corner is a case that routers easily get wrong, and that random packets rarely hit.
type corner struct {
	name string
	// lines and sysctls are applied on top of those of the cases before.
	lines   string
	sysctls [][2]string
	make    func(g *generator, p *packet)
}

// long makes a packet of 1350 bytes that must not be fragmented.
func long(dst string) func(*generator, *packet) {
	return func(g *generator, p *packet) {
		p.port = 0
		if to := addr6(dst); to.Is4() {
			h := g.head4(p)
			h.src, h.dst, h.ttl, h.frag, h.proto, h.payload = host4(0, firstHost), to, 64, 0x4000, 17, g.bytes(1330)
			p.frame = h.build()
		} else {
			h := g.head6(p)
			h.src, h.dst, h.hops, h.next, h.payload = host6(0, firstHost), to, 64, 17, g.bytes(1310)
			p.frame = h.build()
		}
	}
}

// plainTo makes packets to an address that come in by a port from any of its hosts.
func plainTo(port int, dst string) func(*generator, *packet) {
	return func(g *generator, p *packet) {
		p.port = port
		if to := addr6(dst); to.Is4() {
			h := g.head4(p)
			h.src, h.dst, h.ttl = host4(port, g.host()), to, 64
			p.frame = h.build()
		} else {
			h := g.head6(p)
			h.src, h.dst, h.hops = host6(port, g.host()), to, 64
			p.frame = h.build()
		}
	}
}

const twoWays4 = " nexthop via 10.1.1.3 dev p1 nexthop via 10.1.2.4 dev p2\n"
const twoWays6 = " nexthop via fd00:1:1::3 dev p1 nexthop via fd00:1:2::4 dev p2\n"

var corners = []corner{
	{name: "MTU of a route", lines: "route add 40.0.0.0/8 via 10.1.2.3 dev p2 mtu 1300\n", make: long("40.0.0.1")},
	{name: "MTU of a route, IPv6", lines: "route add 2001:db8:40::/48 via fd00:1:2::3 dev p2 mtu 1300\n", make: long("2001:db8:40::1")},
	{name: "MTU of a route of several ways", lines: "route add 41.0.0.0/8 mtu 1300" + twoWays4, make: long("41.0.0.1")},
	{name: "MTU of a route of several ways, IPv6", lines: "route add 2001:db8:41::/48 mtu 1300" + twoWays6, make: long("2001:db8:41::1")},
	{
		name: "route for some sources beside one for all",
		lines: "route add 2001:db8:42::/48 from 2001:db8:1::/48 via fd00:1:1::3 dev p1 metric 20\n" +
			"route add 2001:db8:42::/48 via fd00:1:2::3 dev p2 metric 10\n",
		make: plainTo(0, "2001:db8:42::1"),
	},
	{
		name: "route for all beside one for some sources",
		lines: "route add 2001:db8:47::/48 via fd00:1:2::3 dev p2 metric 10\n" +
			"route add 2001:db8:47::/48 from 2001:db8:1::/48 via fd00:1:1::3 dev p1 metric 1024\n",
		make: plainTo(0, "2001:db8:47::1"),
	},
	{
		name: "routes for some and for all sources of the same metric",
		lines: "route add 2001:db8:48::/48 from 2001:db8:1::/48 via fd00:1:1::3 dev p1 metric 10\n" +
			"route add 2001:db8:48::/48 via fd00:1:2::3 dev p2 metric 10\n",
		make: plainTo(0, "2001:db8:48::1"),
	},
	{
		name: "the same the other way round",
		lines: "route add 2001:db8:49::/48 via fd00:1:2::3 dev p2 metric 10\n" +
			"route add 2001:db8:49::/48 from 2001:db8:1::/48 via fd00:1:1::3 dev p1 metric 10\n",
		make: plainTo(0, "2001:db8:49::1"),
	},
	{name: "first fragments about other packets", lines: "route add 43.0.0.0/8" + twoWays4, make: func(g *generator, p *packet) {
		p.port = 0
		h := g.head4(p)
		h.src, h.dst, h.ttl, h.frag = host4(0, firstHost), addr4(43, 0, 0, 1), 64, 0x2000
		_, h.payload = g.icmp(p, 4, nil)
		h.proto, h.payload[0] = 1, 3
		// For an error, unlike an echo, the kernel chooses the path by the quoted packet.
		inner := (&head4{p: p, src: g.stranger(false), dst: g.stranger(false), ttl: 9, proto: 17, payload: g.bytes(12),
			version: -1, ihl: -1, total: -1}).packet()
		h.payload = append(h.payload[:8:8], inner...)
		p.frame = h.build()
	}},
	{
		name: "rules by ports and another transport than TCP and UDP",
		lines: "rule add pref 900 sport 1-60000 table 100\nroute add 45.0.0.0/8 via 10.1.1.3 dev p1 table 100\n" +
			"route add 45.0.0.0/8 via 10.1.2.3 dev p2\n",
		make: func(g *generator, p *packet) {
			p.port = 0
			h := g.head4(p)
			h.src, h.dst, h.ttl, h.frag, h.proto = host4(0, firstHost), addr4(45, 0, 0, 1), 64, 0, 132
			h.payload = append(binary.BigEndian.AppendUint16(nil, 77), g.bytes(30)...)
			p.frame = h.build()
		},
	},
	{
		name:  "rules by ports, ICMPv6 and several ways",
		lines: six + "rule add pref 900 dport 443 ipproto tcp table 100\nroute add 2001:db8:46::/48 nexthop via fd00:1:1::3 dev p1 nexthop via fd00:1:1::4 dev p1\n",
		make: func(g *generator, p *packet) {
			p.port = 0
			h := g.head6(p)
			h.src, h.dst, h.hops, h.next = host6(0, firstHost), addr6("2001:db8:46::1"), 64, 58
			h.payload = append([]byte{128, 0}, g.bytes(30)...)
			p.frame = h.build()
		},
	},
	{
		name: "ports behind the end of the packet", lines: "route add 44.0.0.0/8" + twoWays4,
		sysctls: [][2]string{{"ipv4/fib_multipath_hash_policy", "1"}},
		make: func(g *generator, p *packet) {
			p.port = 0
			h := g.head4(p)
			h.src, h.dst, h.ttl, h.proto, h.payload, h.frag = host4(0, g.host()), addr4(44, 0, 0, 1), 64, 17, nil, 0
			h.trailing = g.bytes(26)
			p.frame = h.build()
		},
	},
	{name: "IPv6 off where it comes in", sysctls: [][2]string{{"ipv6/conf/p2/disable_ipv6", "1"}}, make: plainTo(2, "fd00:1::4")},
	{name: "another MAC of the port", lines: "link set p1 address 02:00:00:00:01:b1\n", make: plainTo(1, "10.1.2.3")},
	{name: "the MAC of the port again", lines: "link set p1 address 02:00:00:00:01:01\n", make: plainTo(1, "10.1.2.3")},
}

// TestCorners compares the routers for each corner case.
func TestCorners(t *testing.T) {
	tr := newTrial(t, scenario{name: "corners", simple: true}, 14, func(w *twin) *culvert { return attach(w, smallMirror) })
	tr.fast.startControlPlane(route.Options{})
	for _, cn := range corners {
		for _, w := range []*twin{tr.kernel, tr.fast.twin} {
			w.enter()
			w.ip(cn.lines)
			for _, s := range cn.sysctls {
				w.set("net/"+s[0], s[1])
			}
		}
		time.Sleep(stale)
		var c *judge
		for end := time.Now().Add(patience / 10); ; {
			c = newJudge(t, tr.kernel, tr.g)
			c.takes, c.explain = flowNone, tr.fast.explain
			c.try(kind{cn.name, func(g *generator, p *packet) { cn.make(g, p) }}, 40, tr.fast.fate)
			if len(c.counts) == 0 || cn.sysctls == nil || time.Now().After(end) {
				break
			}
		}
		for _, key := range sortedKeys(c.counts) {
			t.Errorf("%d times %s", c.counts[key], key)
		}
		t.Logf("%s: %+v", cn.name, *c.tallies[cn.name])
		for _, complaint := range c.complaints[:min(1, len(c.complaints))] {
			t.Log(complaint)
		}
	}
}
