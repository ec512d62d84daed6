// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"culvert/internal/bench/scenario"
	"culvert/internal/lab/prefixes"
)

// testPrefixes is the path of the file with real prefixes, which the go command has downloaded.
func testPrefixes(t *testing.T) string {
	t.Helper()
	path, err := prefixes.Find(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDestinations(t *testing.T) {
	var routes []netip.Prefix
	for _, text := range []string{"0.0.0.0/0", "192.0.2.0/24", "198.51.100.128/25", "203.0.113.4/30", "203.0.113.9/32"} {
		routes = append(routes, netip.MustParsePrefix(text))
	}
	addrs, from := destinations(routes, 64)
	again, _ := destinations(routes, 64)
	if len(addrs) != 64 || !slices.Equal(addrs, again) {
		t.Fatalf("%d destinations, the same each time: %t", len(addrs), slices.Equal(addrs, again))
	}
	used := map[netip.Prefix]int{}
	for i, a := range addrs {
		if !from[i].Contains(a) || from[i].Bits() == 0 || slices.Index(addrs, a) != i {
			t.Errorf("destination %d, %s, from %s", i, a, from[i])
		}
		used[from[i]]++
	}
	for _, p := range routes[1:] {
		if used[p] == 0 {
			t.Errorf("no destination in %s", p)
		}
	}
	// In a prefix whose length is not a multiple of 8, addresses of both halves are picked.
	addrs6, _ := destinations([]netip.Prefix{netip.MustParsePrefix("2001:db8:2::/47")}, 100)
	var low, high int
	for _, a := range addrs6 {
		if b := a.As16(); b[5]&1 == 0 {
			low++
		} else {
			high++
		}
	}
	if low == 0 || high == 0 {
		t.Errorf("%d destinations in one half of a prefix, %d in the other", low, high)
	}
}

// The first index is drawn about twice as often as the second, and ten times as often as the tenth.
func TestZipf(t *testing.T) {
	const n = 100_000
	counts := make([]int, 1000)
	for _, k := range zipf(len(counts), n) {
		counts[k]++
	}
	for _, k := range []int{2, 10} {
		if ratio := float64(counts[0]) / float64(counts[k-1]); ratio < 0.8*float64(k) || ratio > 1.25*float64(k) {
			t.Errorf("the first is %.2f times as often as number %d", ratio, k)
		}
	}
	if counts[999] == 0 {
		t.Error("the last index is never drawn")
	}
}

// A full table has no routes that the kernel refuses or that overlap the networks of the bench.
func TestFullRoutes(t *testing.T) {
	full, err := fullRoutes(scenario.Options{Prefixes: testPrefixes(t), Sample: 2000})
	if err != nil {
		t.Fatal(err)
	}
	few := fewRoutes()
	for _, v6 := range []bool{false, true} {
		all, first := *full.of(v6), *few.of(v6)
		if len(all) < 1900 || !slices.Equal(all[:len(first)], first) {
			t.Errorf("%d routes, the first %v", len(all), all[:4])
		}
		for _, p := range all[1:] {
			if p.Addr().Is6() != v6 || slices.ContainsFunc(unroutable, p.Overlaps) {
				t.Errorf("route to %s", p)
			}
		}
	}
	if _, err := fullRoutes(scenario.Options{Prefixes: "/nowhere"}); err == nil || !strings.Contains(err.Error(), "make peers") {
		t.Errorf("error %v does not say how to get the table", err)
	}
}
