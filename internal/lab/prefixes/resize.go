// SPDX-License-Identifier: Apache-2.0

package prefixes

import (
	"fmt"
	"net/netip"
	"slices"
)

// The longest prefixes that networks accept from each other. Growth stops there, as it does in the real table.
const (
	longest4 = 24
	longest6 = 48
)

// Resize makes a table of exactly n prefixes out of one family's list: a sample when there are more, or more
// specific prefixes beside those that are there when there are fewer.
func Resize(all []netip.Prefix, n int) ([]netip.Prefix, error) {
	if n <= len(all) {
		return Sample(all, n), nil
	}
	return Grow(all, n)
}

// Grow returns the prefixes and as many more that there are n. Each new one is half of one that stays, as
// networks split what they have to steer their traffic. The prefixes that are split are evenly spread, and the
// same ones each time. The result is in order.
func Grow(all []netip.Prefix, n int) ([]netip.Prefix, error) {
	table := order(slices.Clone(all))
	have := make(map[netip.Prefix]bool, n)
	for _, p := range table {
		have[p] = true
	}
	for len(table) < n {
		// Halves of halves come only when all else is split.
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

// halve returns the two halves of a prefix, or nothing if they would be longer than networks accept.
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
