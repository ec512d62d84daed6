// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
)

func TestPlanBGP(t *testing.T) {
	for _, tc := range []struct {
		name   string
		routes Routes
		v4, v6 int
	}{
		{"none", Routes{Limited: true}, 6, 5},
		{"fewer than well-known", Routes{Limited: true, V4: 1, V6: 2}, 6, 5},
		{"small", Routes{Limited: true, V4: 2000, V6: 355}, 2000, 355},
		{"IPv4 only", Routes{Limited: true, V4: 100}, 100, 5},
		{"full", Routes{}, 901_899, 160_147},
		{"numbers of the full table", Routes{Limited: true, V4: 901_899, V6: 160_147}, 901_899, 160_147},
		{"more than the full table", Routes{Limited: true, V4: 1_050_000, V6: 240_000}, 1_050_000, 240_000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan, err := planBGP(t.Context(), Options{Routes: tc.routes, Peers: bgpPeers(t)})
			if err != nil {
				t.Fatal(err)
			}
			if plan.v4.announced() != tc.v4 || plan.v6.announced() != tc.v6 {
				t.Errorf("%d and %d prefixes, want %d and %d", plan.v4.announced(), plan.v6.announced(), tc.v4, tc.v6)
			}
			for _, f := range []bgpFamily{plan.v4, plan.v6} {
				checkFamily(t, f)
			}
		})
	}
}

func checkFamily(t *testing.T, f bgpFamily) {
	t.Helper()
	seen := make(map[netip.Prefix]bool)
	for _, p := range slices.Concat(f.valid, f.invalid) {
		if seen[p] {
			t.Fatalf("%v is announced twice", p)
		}
		seen[p] = true
		if slices.ContainsFunc(reserved, p.Overlaps) || p.Bits() == 0 {
			t.Fatalf("%v overlaps a reserved prefix", p)
		}
	}
	for _, p := range f.valid {
		if slices.ContainsFunc(f.invalid, p.Overlaps) {
			t.Fatalf("%v overlaps one of %v, which are filtered", p, f.invalid)
		}
	}
	for _, p := range f.invalid {
		if !slices.Contains(f.roas, p) {
			t.Errorf("no authorization makes the origin of %v invalid", p)
		}
	}
	if !f.valid[0].Contains(f.target) || !slices.Contains(f.roas, f.valid[0]) {
		t.Errorf("target %v: it is not in the first prefix, %v, or that has no authorization", f.target, f.valid[0])
	}
	if !slices.ContainsFunc(f.invalid, func(p netip.Prefix) bool { return p.Contains(f.invalidAddr) }) {
		t.Errorf("%v is in none of %v", f.invalidAddr, f.invalid)
	}
}

func TestParseRoutes(t *testing.T) {
	for s, want := range map[string]Routes{
		"full":           {},
		"0":              {Limited: true},
		"2000":           {Limited: true, V4: 2000, V6: 355},
		"901899":         {Limited: true, V4: 901_899, V6: 160_147},
		"1050000,240000": {Limited: true, V4: 1_050_000, V6: 240_000},
		"5,0":            {Limited: true, V4: 5},
	} {
		if got, err := ParseRoutes(s); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "all", "-1", "1,", ",1", "1,2,3", "1.5", "99999999999"} {
		if got, err := ParseRoutes(s); !errors.Is(err, ErrOptions) {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
}

func TestMainTablePrefixes(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want int
		fail bool
	}{
		"local and main table": {"Basic info: size of leaf: 48 bytes.\nLocal:\n\tPrefixes:       7\nMain:\n\tLeaves: 3\n\tPrefixes:       12\n\tNull ptrs: 1\n", 12, false},
		"no main table":        {"Basic info\n", 0, false},
		"no number":            {"Main:\n", 0, true},
	} {
		if n, err := mainTablePrefixes(tc.text); n != tc.want || (err != nil) != tc.fail {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}

// TestPlanLeavesOut has tables with prefixes that must not be announced, which the real table does not have.
func TestPlanLeavesOut(t *testing.T) {
	for _, tc := range []struct {
		wellKnown   bgpFamily
		table, want []netip.Prefix
	}{
		{
			wellKnown4,
			mustPrefixes("0.0.0.0/0", "0.0.0.0/8", "10.0.0.0/8", "127.0.0.0/16", "198.0.0.0/8", "198.18.1.0/24",
				"198.41.0.0/16", "198.41.0.0/25", "224.0.0.0/4", "9.9.9.0/24"),
			mustPrefixes("10.0.0.0/8"),
		},
		{
			wellKnown6,
			mustPrefixes("::/0", "::/96", "2001:db8:1::/64", "2001::/16", "2001:500:2::/56", "2400::/12", "fe80::/64", "ff00::/8"),
			mustPrefixes("2400::/12"),
		},
	} {
		f, err := tc.wellKnown.extend(tc.table, -1)
		if got := f.valid[len(tc.wellKnown.valid):]; err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("of %v there are %v, want %v; %v", tc.table, got, tc.want, err)
		}
	}
}
