// SPDX-License-Identifier: Apache-2.0

package prefixes

import (
	"fmt"
	"net/netip"
	"slices"
)

// The lengths of the longest prefixes that networks accept from each other. Grow makes no longer ones, and the real table has
// none.
const (
	longest4 = 24
	longest6 = 48
)

// Resize returns a table of exactly n prefixes, made from the list of one family: a sample of the list, or the list with more
// specific prefixes added.
func Resize(all []netip.Prefix, n int) ([]netip.Prefix, error) {
	if n <= len(all) {
		return Sample(all, n), nil
	}
	return Grow(all, n)
}

// Grow returns a table of n prefixes: all of the list, and more specific ones. Each new prefix is half of another one in the
// table, as networks split their prefixes to steer traffic. The prefixes to split are evenly spread, and the same ones each
// time. The table is sorted. Grow returns an error if the list cannot be split into n prefixes.
func Grow(all []netip.Prefix, n int) ([]netip.Prefix, error) {
	table := order(slices.Clone(all))
	have := make(map[netip.Prefix]bool, n)
	for _, p := range table {
		have[p] = true
	}
	for len(table) < n {
		// A round splits every prefix once. Halves of halves come with the next round.
		var halves []netip.Prefix
		for _, p := range table {
			for _, h := range halve(p) {
				if !have[h] {
					halves = append(halves, h)
				}
			}
		}
		if len(halves) == 0 {
			return nil, fmt.Errorf("make a table of %d prefixes: splitting %d of them gives %d at most, ask for fewer",
				n, len(all), len(table))
		}
		for _, h := range Sample(halves, n-len(table)) {
			have[h] = true
			table = append(table, h)
		}
		table = order(table)
	}
	return table, nil
}

// halve returns the two halves of a prefix, or nil if networks accept no prefixes of that length.
func halve(p netip.Prefix) []netip.Prefix {
	longest := longest4
	if p.Addr().Is6() {
		longest = longest6
	}
	if p.Bits() >= longest {
		return nil
	}
	upper := p.Addr().AsSlice()
	upper[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	addr, _ := netip.AddrFromSlice(upper)
	return []netip.Prefix{netip.PrefixFrom(p.Addr(), p.Bits()+1), netip.PrefixFrom(addr, p.Bits()+1)}
}
