// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"sort"

	"culvert/internal/bench/load"
	"culvert/internal/bench/scenario"
	"culvert/internal/lab"
	"culvert/internal/lab/prefixes"
)

// gatewayCount is how many neighbors the routes of a family lead to, by turns.
const gatewayCount = 8

// The networks of the wires, which are for benchmarks (RFC 2544, RFC 5180). The first address of each is the
// router's, the second the tester's, and those from the second on are the gateways.
var (
	netIn4  = netip.MustParsePrefix("198.18.0.0/24")
	netOut4 = netip.MustParsePrefix("198.19.0.0/24")
	netIn6  = netip.MustParsePrefix("2001:2:0:1::/64")
	netOut6 = netip.MustParsePrefix("2001:2:0:2::/64")
)

// unroutable are networks that the kernel takes no unicast routes to, or that the bench itself has.
var unroutable = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("::/16"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
	netip.MustParsePrefix("2001:2::/48"),
}

// table is what a router under test has routes to, in the order in which they are installed.
type table struct {
	v4, v6 []netip.Prefix
}

// fewRoutes is a table of a handful: documentation networks and a default route in each family.
func fewRoutes() table {
	var t table
	for _, text := range []string{
		"0.0.0.0/0", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "::/0", "2001:db8:1::/48", "2001:db8:2::/48", "2001:db8:3::/48",
	} {
		p := netip.MustParsePrefix(text)
		*t.of(p.Addr().Is6()) = append(*t.of(p.Addr().Is6()), p)
	}
	return t
}

// fullRoutes is a few routes and all of a full table, or so many of each family if sample is not 0.
func fullRoutes(o scenario.Options) (table, error) {
	path := o.Prefixes
	if path == "" {
		peers, err := lab.DefaultPeers()
		if err != nil {
			return table{}, err
		}
		path = filepath.Join(peers.Bin, prefixes.File)
	}
	v4, v6, err := prefixes.Load(path)
	if err != nil {
		return table{}, fmt.Errorf("%w ('make peers' does), or measure without: --groups 4-few,6-few", err)
	}
	if o.Sample > 0 {
		v4, v6 = prefixes.Sample(v4, o.Sample), prefixes.Sample(v6, o.Sample)
	}
	t := fewRoutes()
	few := append(slices.Clone(unroutable), t.v4[1:]...)
	few = append(few, t.v6[1:]...)
	t.v4 = append(t.v4, prefixes.Without(v4, few)...)
	t.v6 = append(t.v6, prefixes.Without(v6, few)...)
	return t, nil
}

// of is the table of a family.
func (t *table) of(v6 bool) *[]netip.Prefix {
	if v6 {
		return &t.v6
	}
	return &t.v4
}

// gateway is the neighbor that route number n of a family leads to.
func gateway(v6 bool, n int) netip.Addr {
	a := netOut4.Addr()
	if v6 {
		a = netOut6.Addr()
	}
	for range 2 + n%gatewayCount {
		a = a.Next()
	}
	return a
}

// install makes all routes of a family.
func (t table) install(ctx context.Context, w *writer, v6 bool) error {
	gateways := gatewaysOf(v6)
	for i, p := range *t.of(v6) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted: %w", err)
		}
		if err := w.change(addRoute, p, gateways[i%gatewayCount]); err != nil {
			return err
		}
	}
	return w.flush()
}

// gatewaysOf are the neighbors of a family.
func gatewaysOf(v6 bool) []netip.Addr {
	all := make([]netip.Addr, gatewayCount)
	for i := range all {
		all[i] = gateway(v6, i)
	}
	return all
}

// destinations are n different addresses inside routes picked at random, each route as likely as any other, and the
// route that each was picked from. Default routes are not picked.
func destinations(routes []netip.Prefix, n int) (addrs []netip.Addr, from []netip.Prefix) {
	r := rand.New(rand.NewPCG(load.Seed, uint64(n)))
	seen := map[netip.Addr]bool{}
	specific := slices.DeleteFunc(slices.Clone(routes), func(p netip.Prefix) bool { return p.Bits() == 0 })
	for len(addrs) < n {
		p := specific[r.IntN(len(specific))]
		a := load.AddressIn(r, p)
		if !seen[a] {
			seen[a] = true
			addrs, from = append(addrs, a), append(from, p)
		}
	}
	return addrs, from
}

// zipf picks n of so many things, the k-th with a likelihood of 1/k.
func zipf(things, n int) []int {
	r := rand.New(rand.NewPCG(load.Seed, uint64(things)))
	sums := make([]float64, things)
	sum := 0.0
	for k := range sums {
		sum += 1 / float64(k+1)
		sums[k] = sum
	}
	picked := make([]int, n)
	for i := range picked {
		at := r.Float64() * sum
		picked[i] = min(sort.Search(things, func(k int) bool { return sums[k] > at }), things-1)
	}
	return picked
}
