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

// Routes says how many prefixes peer announces in the topology bgp. The zero value stands for the full table;
// with Limited, so many of either family, but a handful at least.
type Routes struct {
	Limited bool
	V4, V6  int
}

// mostRoutes is what the table can be split into, roughly.
const mostRoutes = 4_000_000

func (r Routes) check() error {
	if r.V4 < 0 || r.V6 < 0 || r.V4 > mostRoutes || r.V6 > mostRoutes {
		return fmt.Errorf("%d and %d routes: choose 0 to %d", r.V4, r.V6, mostRoutes)
	}
	return nil
}

// none tells that nothing but the handful is announced.
func (r Routes) none() bool { return r.Limited && r.V4 == 0 && r.V6 == 0 }

func parseCount(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err
}

// The ASes of the topology bgp are numbers for documentation.
const (
	asRut      = 64496
	asPeer     = 64497
	asOrigin   = 64498 // of all prefixes
	asImpostor = 64499 // who announces some of them too
)

// bgpPlan is what peer announces and rpki says about it.
type bgpPlan struct{ v4, v6 bgpFamily }

// bgpFamily is the plan for one family.
type bgpFamily struct {
	right, wrong []netip.Prefix // announced, by their origin
	roas         []netip.Prefix // these may be announced by asOrigin, and all inside of them
	target       netip.Addr     // in the first of right
	known        []netip.Addr   // in the next of right, known as well
	wrongAddr    netip.Addr     // in one of wrong
}

// The handful that is always announced: networks that are widely known, so that one can type their addresses.
// The target is in the first. No other prefix of the table leads to those with a wrong origin.
var (
	handful4 = bgpFamily{
		right:  mustPrefixes("1.1.1.0/24", "8.8.8.0/24", "9.9.9.0/24"),
		wrong:  mustPrefixes("192.33.4.0/24", "193.0.0.0/21", "198.41.0.0/24"),
		target: netip.MustParseAddr("1.1.1.1"), wrongAddr: netip.MustParseAddr("192.33.4.12"),
		known: []netip.Addr{netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("9.9.9.9")},
	}
	handful6 = bgpFamily{
		right:  mustPrefixes("2606:4700:4700::/48", "2001:4860::/32", "2620:fe::/48"),
		wrong:  mustPrefixes("2001:500:2::/48", "2001:67c:2e8::/48"),
		target: netip.MustParseAddr("2606:4700:4700::1111"), wrongAddr: netip.MustParseAddr("2001:500:2::c"),
		known: []netip.Addr{netip.MustParseAddr("2001:4860:4860::8888"), netip.MustParseAddr("2620:fe::fe")},
	}
)

// reserved is what no announced prefix may reach into: the lab's own addresses, and what is never routed.
var reserved = mustPrefixes(
	"198.18.0.0/15", "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3",
	"2001:db8::/32", "::/8", "fe80::/10", "ff00::/8")

// roaShare is how many announced prefixes there are for each that has an authorization. Real tables have more.
const roaShare = 10

func mustPrefixes(list ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(list))
	for i, s := range list {
		all[i] = netip.MustParsePrefix(s)
	}
	return all
}

// planBGP decides what is announced.
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
	if plan.v4, err = handful4.extend(v4, n4); err != nil {
		return plan, err
	}
	if plan.v6, err = handful6.extend(v6, n6); err != nil {
		return plan, err
	}
	progress(o.Out, "prefixes: %d IPv4, %d IPv6; with a wrong origin: %d and %d",
		plan.v4.announced(), plan.v6.announced(), len(plan.v4.wrong), len(plan.v6.wrong))
	return plan, nil
}

// extend makes a plan of n prefixes from the handful and a table, or of all that there are if n is negative.
func (f bgpFamily) extend(table []netip.Prefix, n int) (bgpFamily, error) {
	table = prefixes.Without(table, slices.Concat(reserved, f.wrong))
	isHandful := func(p netip.Prefix) bool { return slices.Contains(f.right, p) }
	table = slices.DeleteFunc(table, isHandful)
	more := n - len(f.right) - len(f.wrong)
	if more > len(table) {
		// Growing keeps all that is in the table, and could find some of the handful.
		grown, err := prefixes.Grow(append(table, f.right...), n-len(f.wrong))
		if err != nil {
			return f, err
		}
		table = slices.DeleteFunc(grown, isHandful)
	} else if n >= 0 {
		table = prefixes.Sample(table, more)
	}
	f.right = slices.Concat(f.right, table)
	// The first of them, which has the target, is in every sample.
	f.roas = slices.Concat(f.wrong, prefixes.Sample(f.right, max(len(f.right)/roaShare, 1)))
	return f, nil
}

func (f bgpFamily) announced() int { return len(f.right) + len(f.wrong) }

// summary is what the state says about the plan before it is carried out.
func (f bgpFamily) summary() BGPTable {
	return BGPTable{
		Announced: f.announced(), Wrong: len(f.wrong), ROAs: len(f.roas),
		Target: f.target, WrongAddr: f.wrongAddr,
	}
}

// lines formats each prefix and joins them.
func lines(all []netip.Prefix, format string) string {
	var b strings.Builder
	for _, p := range all {
		fmt.Fprintf(&b, format, p)
	}
	return b.String()
}
