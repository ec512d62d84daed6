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

// gatewayCount is the number of gateways of each family. Routes lead to them in turns, or to all of them.
const gatewayCount = 8

// The networks of the wires, which are for benchmarks (RFC 2544, RFC 5180). The first address of each is the router's. The
// second address of the inbound networks is the tester's. The gateways have the addresses from the second on in the outbound
// networks.
var (
	netIn4  = netip.MustParsePrefix("198.18.0.0/24")
	netOut4 = netip.MustParsePrefix("198.19.0.0/24")
	netIn6  = netip.MustParsePrefix("2001:2:0:1::/64")
	netOut6 = netip.MustParsePrefix("2001:2:0:2::/64")
)

// unroutable are networks for which the kernel refuses unicast routes, and those of the bench itself.
var unroutable = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("::/16"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
	netip.MustParsePrefix("2001:2::/48"),
}

// table has the destinations of a router's routes, in the order in which they are installed.
type table struct {
	v4, v6 []netip.Prefix
	// several means that each route leads to all gateways, of which the kernel chooses one for each flow.
	several bool
}

// fewRoutes is a table with a default route and three documentation networks in each family.
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

// wideRoutes is a table with one route in each family that has room for many destinations.
func wideRoutes(several bool) table {
	return table{v4: []netip.Prefix{netip.MustParsePrefix("100.64.0.0/10")}, v6: []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")}, several: several}
}

// fullRoutes is fewRoutes with all routes of a full table, or with o.Sample of each family if that is not 0.
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
		return table{}, fmt.Errorf("%w ('make peers' does), or measure without: --groups 4-few,6-few,4-multi,6-multi", err)
	}
	if o.Sample > 0 {
		v4, v6 = prefixes.Sample(v4, o.Sample), prefixes.Sample(v6, o.Sample)
	}
	t := fewRoutes()
	excluded := append(slices.Clone(unroutable), t.v4[1:]...)
	excluded = append(excluded, t.v6[1:]...)
	t.v4 = append(t.v4, prefixes.Without(v4, excluded)...)
	t.v6 = append(t.v6, prefixes.Without(v6, excluded)...)
	return t, nil
}

// of is the part of the table for a family.
func (t *table) of(v6 bool) *[]netip.Prefix {
	if v6 {
		return &t.v6
	}
	return &t.v4
}

// gateway is the address of the gateway of route number n of a family.
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

// install adds all routes of a family to the kernel.
func (t table) install(ctx context.Context, w *writer, v6 bool) error {
	gateways := gatewaysOf(v6)
	for i, p := range *t.of(v6) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted: %w", err)
		}
		to := gateways[i%gatewayCount:][:1]
		if t.several {
			to = gateways
		}
		if err := w.change(addRoute, p, to...); err != nil {
			return err
		}
	}
	return w.flush()
}

// gatewaysOf are the gateways of a family.
func gatewaysOf(v6 bool) []netip.Addr {
	all := make([]netip.Addr, gatewayCount)
	for i := range all {
		all[i] = gateway(v6, i)
	}
	return all
}

// destinations picks n different random addresses: each in a random route, with the same probability for all routes. It also
// returns the route of each. Default routes are not picked.
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

// zipf draws n indexes below count from a Zipf distribution: the k-th index has a probability proportional to 1/k.
func zipf(count, n int) []int {
	r := rand.New(rand.NewPCG(load.Seed, uint64(count)))
	sums := make([]float64, count)
	sum := 0.0
	for k := range sums {
		sum += 1 / float64(k+1)
		sums[k] = sum
	}
	picked := make([]int, n)
	for i := range picked {
		at := r.Float64() * sum
		picked[i] = min(sort.Search(count, func(k int) bool { return sums[k] > at }), count-1)
	}
	return picked
}
