// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"culvert/internal/lab/prefixes"
)

// Routes is the number of prefixes that peer announces in the topology bgp. The zero value stands for the full table. With
// Limited it is V4 and V6, but not less than the well-known prefixes, which are always announced.
type Routes struct {
	Limited bool
	V4, V6  int
}

// maxRoutes is about the largest table into which prefixes.Grow can split the full one.
const maxRoutes = 4_000_000

func (r Routes) check() error {
	if r.V4 < 0 || r.V6 < 0 || r.V4 > maxRoutes || r.V6 > maxRoutes {
		return fmt.Errorf("%d and %d routes: choose 0 to %d", r.V4, r.V6, maxRoutes)
	}
	return nil
}

// none tells whether only the well-known prefixes are announced.
func (r Routes) none() bool { return r.Limited && r.V4 == 0 && r.V6 == 0 }

func parseCount(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err
}

// AS numbers of the topology bgp, from those for documentation (RFC 5398).
const (
	asRut      = 64496
	asPeer     = 64497
	asOrigin   = 64498 // the origin of the valid prefixes
	asImpostor = 64499 // the origin of the invalid ones
)

// bgpPlan has what peer announces and what rpki serves.
type bgpPlan struct{ v4, v6 bgpFamily }

// bgpFamily is the plan for one family. A prefix is valid or invalid by its origin AS (RFC 6811).
type bgpFamily struct {
	// valid and invalid are the prefixes that peer announces.
	valid, invalid []netip.Prefix
	// roas are the prefixes that asOrigin is authorized to announce, with all longer ones inside them.
	roas []netip.Prefix
	// target is an address in valid[0], and invalidAddr one in a prefix of invalid.
	target, invalidAddr netip.Addr
	// known are well-known addresses in other prefixes of valid.
	known []netip.Addr
}

// The well-known prefixes are always announced, so that users have familiar addresses to type. The target is in the first
// one. No other announced prefix contains an invalid one.
var (
	wellKnown4 = bgpFamily{
		valid:   mustPrefixes("1.1.1.0/24", "8.8.8.0/24", "9.9.9.0/24"),
		invalid: mustPrefixes("192.33.4.0/24", "193.0.0.0/21", "198.41.0.0/24"),
		target:  netip.MustParseAddr("1.1.1.1"), invalidAddr: netip.MustParseAddr("192.33.4.12"),
		known: []netip.Addr{netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("9.9.9.9")},
	}
	wellKnown6 = bgpFamily{
		valid:   mustPrefixes("2606:4700:4700::/48", "2001:4860::/32", "2620:fe::/48"),
		invalid: mustPrefixes("2001:500:2::/48", "2001:67c:2e8::/48"),
		target:  netip.MustParseAddr("2606:4700:4700::1111"), invalidAddr: netip.MustParseAddr("2001:500:2::c"),
		known: []netip.Addr{netip.MustParseAddr("2001:4860:4860::8888"), netip.MustParseAddr("2620:fe::fe")},
	}
)

// knownAddrs returns the well-known addresses as prefixes of a single address.
func knownAddrs() (all []netip.Prefix) {
	for _, f := range []bgpFamily{wellKnown4, wellKnown6} {
		for _, a := range append(f.known, f.target) {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return all
}

// reserved has the prefixes that no announced prefix may overlap: the lab's addresses, and addresses that are never routed.
var reserved = mustPrefixes(
	"198.18.0.0/15", "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3",
	"2001:db8::/32", "::/8", "fe80::/10", "ff00::/8")

// roaShare is the number of announced prefixes for each route origin authorization. In the Internet more prefixes have one.
const roaShare = 10

func mustPrefixes(list ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(list))
	for i, s := range list {
		all[i] = netip.MustParsePrefix(s)
	}
	return all
}

// planBGP decides which prefixes are announced.
func planBGP(ctx context.Context, o Options) (plan bgpPlan, err error) {
	var v4, v6 []netip.Prefix
	if !o.Routes.none() {
		if err := o.Peers.BuildPrefixes(ctx, o.Out); err != nil {
			return plan, err
		}
		if v4, v6, err = prefixes.Load(o.Peers.Bin); err != nil {
			return plan, err
		}
	}
	n4, n6 := o.Routes.V4, o.Routes.V6
	if !o.Routes.Limited {
		n4, n6 = -1, -1
	}
	if plan.v4, err = wellKnown4.extend(v4, n4); err != nil {
		return plan, err
	}
	if plan.v6, err = wellKnown6.extend(v6, n6); err != nil {
		return plan, err
	}
	progress(o.Out, "prefixes: %d IPv4, %d IPv6; with an invalid origin: %d and %d",
		plan.v4.announced(), plan.v6.announced(), len(plan.v4.invalid), len(plan.v6.invalid))
	return plan, nil
}

// extend returns a plan with n prefixes, the well-known ones of f and others of a table, or with the whole table if n is
// negative.
func (f bgpFamily) extend(table []netip.Prefix, n int) (bgpFamily, error) {
	table = prefixes.Without(table, slices.Concat(reserved, f.invalid))
	isWellKnown := func(p netip.Prefix) bool { return slices.Contains(f.valid, p) }
	table = slices.DeleteFunc(table, isWellKnown)
	more := n - len(f.valid) - len(f.invalid)
	if more > len(table) {
		// Grow needs the well-known prefixes in the table. Otherwise it could make them a second time.
		grown, err := prefixes.Grow(append(table, f.valid...), n-len(f.invalid))
		if err != nil {
			return f, err
		}
		table = slices.DeleteFunc(grown, isWellKnown)
	} else if n >= 0 {
		table = prefixes.Sample(table, more)
	}
	f.valid = slices.Concat(f.valid, table)
	// Every sample has the first prefix, which contains the target.
	f.roas = slices.Concat(f.invalid, prefixes.Sample(f.valid, max(len(f.valid)/roaShare, 1)))
	return f, nil
}

func (f bgpFamily) announced() int { return len(f.valid) + len(f.invalid) }

// summary returns what the lab's state says about the plan before it is carried out.
func (f bgpFamily) summary() BGPTable {
	return BGPTable{
		Announced: f.announced(), Invalid: len(f.invalid), ROAs: len(f.roas),
		Target: f.target, InvalidAddr: f.invalidAddr,
	}
}

// lines formats each prefix and joins the results.
func lines(all []netip.Prefix, format string) string {
	var b strings.Builder
	for _, p := range all {
		fmt.Fprintf(&b, format, p)
	}
	return b.String()
}
