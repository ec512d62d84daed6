// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// entry is a route with the commands of ip(8) that add and delete it.
type entry struct {
	prefix   netip.Prefix
	add, del string
	// key has the attributes by which the kernel distinguishes routes.
	key string
}

// mainTable is the number of the main routing table.
const mainTable = 254

// table is a model of the routes that the generator has added to the kernel.
type table struct {
	routes []entry
	keys   map[string]bool
	// simple says that only routes are added which treat all packets to a destination alike.
	simple bool
	// locals says that routes of type local are added too, besides those of the host's addresses.
	locals bool
	// ids are the numbers of the tables that get routes.
	ids []int
}

// pick returns an address in, at an edge of or next to a prefix of the table. It may find none, and then returns the zero value.
func (t *table) pick(g *generator, v6 bool) netip.Addr {
	for range 8 {
		if len(t.routes) == 0 {
			break
		}
		p := t.routes[g.IntN(len(t.routes))].prefix
		if p.Addr().Is6() != v6 || p.Bits() == 0 {
			continue
		}
		first, last := p.Addr(), lastOf(p)
		switch g.IntN(8) {
		case 0:
			return first
		case 1:
			return last
		case 2:
			return first.Prev()
		case 3:
			return last.Next()
		}
		return g.within(p)
	}
	return netip.Addr{}
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// within returns a random address of a prefix.
func (g *generator) within(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		if g.chance(2) {
			b[i/8] |= 0x80 >> (i % 8)
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// prefix returns a random prefix of one of the lengths. It is often inside another prefix of the table, so that prefixes nest.
func (g *generator) prefix(v6 bool, lengths ...int) netip.Prefix {
	bits := one(g, lengths...)
	if a := g.table.pick(g, v6); a.IsValid() && g.IntN(3) > 0 && inPool(a) {
		return netip.PrefixFrom(a, bits).Masked()
	}
	pool := netip.MustParsePrefix("20.0.0.0/8")
	if v6 {
		pool = netip.MustParsePrefix("2001:db8::/32")
	} else if g.chance(2) {
		pool = netip.MustParsePrefix(fmt.Sprintf("%d.0.0.0/8", 21+g.IntN(9)))
	}
	return netip.PrefixFrom(g.within(pool), bits).Masked()
}

// inPool tells whether an address is in the networks that the generator uses for routes.
func inPool(a netip.Addr) bool {
	if a.Is6() {
		return netip.MustParsePrefix("2001:db8::/32").Contains(a)
	}
	b := a.As4()
	return b[0] >= 20 && b[0] < 30
}

// nobody is the end of the address of a gateway that does not answer.
const nobody = ".100"

// way returns a random gateway in the syntax of ip(8).
func (g *generator) way(v6 bool) string {
	port := g.IntN(ports)
	host := firstHost + g.IntN(4)
	switch {
	case v6 && g.chance(2):
		return fmt.Sprintf("via fe80::%d:%d dev p%d", port, host, port)
	case v6:
		return fmt.Sprintf("via fd00:1:%d::%d dev p%d", port, host, port)
	case g.chance(8):
		return fmt.Sprintf("via inet6 fd00:1:%d::%d dev p%d", port, host, port)
	case g.chance(8):
		return fmt.Sprintf("via inet6 fe80::%d:%d dev p%d", port, host, port)
	case g.chance(8):
		return fmt.Sprintf("via 172.16.%d.%d dev p%d onlink", port, host, port)
	case g.chance(20):
		return fmt.Sprintf("via 10.1.%d%s dev p%d", port, nobody, port)
	}
	return fmt.Sprintf("via 10.1.%d.%d dev p%d", port, host, port)
}

// route returns a random route that is not in the table.
func (g *generator) route() entry {
	for {
		r := g.anyRoute(g.chance(2), one(g, g.table.ids...))
		if !g.table.keys[r.key] {
			return r
		}
	}
}

// anyRoute returns a random route, which may be in the table already.
func (g *generator) anyRoute(v6 bool, tableID int) entry {
	lengths := []int{8, 10, 12, 13, 16, 16, 18, 20, 22, 23, 24, 24, 24, 24, 25, 28, 31, 32, 32}
	metrics := []int{0, 0, 0, 10, 20}
	typ, tos := "", ""
	if v6 {
		lengths = []int{33, 40, 44, 47, 48, 48, 56, 63, 64, 64, 64, 65, 96, 112, 127, 128, 128}
		metrics = []int{1024, 1024, 1024, 10, 20}
	}
	prefix := g.prefix(v6, lengths...)
	var out string
	switch n := g.IntN(40); {
	case n < 4:
		typ = one(g, "unreachable ", "prohibit ", "blackhole ", "throw ")
	case n < 5 && g.table.locals:
		typ, out = "local ", "dev lo"
	case n < 7: // a network without a gateway. It is small, since each unknown neighbor costs the host an entry.
		prefix = g.prefix(v6, map[bool][]int{false: {30, 31, 32}, true: {126, 127, 128}}[v6]...)
		out = fmt.Sprintf("dev p%d", g.IntN(ports))
	case n < 13 && !g.table.simple:
		out = g.multipath(v6)
	case n < 18:
		out = fmt.Sprintf("nhid %d", g.nexthopID(v6))
	case n < 22:
		out = g.way(v6) + one(g, " mtu ", " mtu lock ") + fmt.Sprint(one(g, lowestMTU, 1300, 1399, 1400, 1401, 1500, 9000))
	case n < 23 && !v6 && !g.table.simple:
		tos = fmt.Sprintf("tos 0x%02x ", one(g, 0x10, 0x08, 0x04))
		out = g.way(v6)
	case n < 23 && !g.table.simple:
		tos = fmt.Sprintf("from %s ", g.prefix(v6, 48, 64, 128))
		out = g.way(v6)
	default:
		out = g.way(v6)
	}
	key := fmt.Sprintf("%s%smetric %d table %d", prefix.String()+" ", tos, one(g, metrics...), tableID)
	return entry{
		prefix: prefix,
		key:    key,
		add:    fmt.Sprintf("route add %s%s %s", typ, key, out),
		del:    fmt.Sprintf("route del %s%s", typ, key),
	}
}

// multipath returns two to four next hops, in the syntax of ip(8).
func (g *generator) multipath(v6 bool) string {
	var b strings.Builder
	seen := make(map[string]bool)
	for n := 2 + g.IntN(3); len(seen) < n; {
		way := g.way(v6)
		if !seen[way] { // IPv6 refuses equal next hops
			fmt.Fprintf(&b, "nexthop %s weight %d ", way, one(g, 1, 1, 2, 5, 255))
		}
		seen[way] = true
	}
	return b.String()
}

// IDs of next hop objects: single ones are 1 to nexthops, groups start at group0. Those of IPv6 are higher by family6.
const (
	nexthops = 12
	groups   = 4
	family6  = 100
	group0   = 51
)

// nexthopID returns the ID of a random next hop object.
func (g *generator) nexthopID(v6 bool) int {
	id := 1 + g.IntN(nexthops)
	if g.chance(3) && !g.table.simple {
		id = group0 + g.IntN(groups)
	}
	if v6 {
		id += family6
	}
	return id
}

// nexthopObjects returns the commands that add the next hop objects.
func (g *generator) nexthopObjects() string {
	var b strings.Builder
	for _, v6 := range []bool{false, true} {
		base := 0
		if v6 {
			base = family6
		}
		for n := 1; n <= nexthops; n++ {
			if n == nexthops && !v6 { // ip(8) makes blackholes IPv4 objects
				fmt.Fprintf(&b, "nexthop add id %d blackhole\n", base+n)
			} else {
				way := g.way(v6)
				for strings.Contains(way, nobody) {
					// Groups avoid gateways that do not answer. The twins would differ: only a kernel that has asked
					// knows that a gateway does not.
					way = g.way(v6)
				}
				fmt.Fprintf(&b, "nexthop add id %d %s\n", base+n, way)
			}
		}
		for n := range groups {
			a := base + 1 + g.IntN(nexthops-3)
			fmt.Fprintf(&b, "nexthop add id %d group %d/%d,%d\n", base+group0+n, a, a+1, 1+g.IntN(5))
		}
	}
	return b.String()
}

// fill adds n routes to the table and returns the commands for them.
func (g *generator) fill(n int) string {
	var b strings.Builder
	for range n {
		r := g.route()
		g.table.put(r)
		fmt.Fprintln(&b, r.add)
	}
	return b.String()
}

// churn deletes n routes, adds as many others, and returns the commands.
func (g *generator) churn(n int) string {
	var b strings.Builder
	for range n {
		i := g.IntN(len(g.table.routes))
		old := g.table.routes[i]
		g.table.routes = slices.Delete(g.table.routes, i, i+1)
		delete(g.table.keys, old.key)
		fmt.Fprintln(&b, old.del)
	}
	return b.String() + g.fill(n)
}

func (t *table) put(r entry) {
	if t.keys == nil {
		t.keys = make(map[string]bool)
	}
	t.keys[r.key] = true
	t.routes = append(t.routes, r)
}
