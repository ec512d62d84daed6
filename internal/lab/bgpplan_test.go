// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
)

func TestPlanBGP(t *testing.T) {
	for _, try := range []struct {
		name   string
		routes Routes
		v4, v6 int
	}{
		{"none", Routes{Limited: true}, 6, 5},
		{"fewer than always", Routes{Limited: true, V4: 1, V6: 2}, 6, 5},
		{"small", Routes{Limited: true, V4: 2000, V6: 355}, 2000, 355},
		{"IPv4 alone", Routes{Limited: true, V4: 100}, 100, 5},
		{"full", Routes{}, 901_899, 160_147},
		{"as many as there are", Routes{Limited: true, V4: 901_899, V6: 160_147}, 901_899, 160_147},
		{"grown", Routes{Limited: true, V4: 1_050_000, V6: 240_000}, 1_050_000, 240_000},
	} {
		t.Run(try.name, func(t *testing.T) {
			plan, err := planBGP(t.Context(), Options{Routes: try.routes, Peers: bgpPeers(t)})
			if err != nil {
				t.Fatal(err)
			}
			if plan.v4.announced() != try.v4 || plan.v6.announced() != try.v6 {
				t.Errorf("%d and %d prefixes, want %d and %d", plan.v4.announced(), plan.v6.announced(), try.v4, try.v6)
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
	for _, p := range slices.Concat(f.right, f.wrong) {
		if seen[p] {
			t.Fatalf("%v is announced twice", p)
		}
		seen[p] = true
		if slices.ContainsFunc(reserved, p.Overlaps) || p.Bits() == 0 {
			t.Fatalf("%v reaches into what is reserved", p)
		}
	}
	for _, p := range f.right {
		if slices.ContainsFunc(f.wrong, p.Overlaps) {
			t.Fatalf("%v leads to one of %v, which are filtered", p, f.wrong)
		}
	}
	for _, p := range f.wrong {
		if !slices.Contains(f.roas, p) {
			t.Errorf("nothing says that the origin of %v is wrong", p)
		}
	}
	if !f.right[0].Contains(f.target) || !slices.Contains(f.roas, f.right[0]) {
		t.Errorf("the target %v is not in the first prefix, %v, or that has no authorization", f.target, f.right[0])
	}
	if !slices.ContainsFunc(f.wrong, func(p netip.Prefix) bool { return p.Contains(f.wrongAddr) }) {
		t.Errorf("%v is in none of %v", f.wrongAddr, f.wrong)
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

func TestMainPrefixes(t *testing.T) {
	const text = "Basic info: size of leaf: 48 bytes.\nLocal:\n\tPrefixes:       7\nMain:\n\tLeaves: 3\n\tPrefixes:       12\n\tNull ptrs: 1\n"
	if n, err := mainPrefixes(text); n != 12 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := mainPrefixes("Basic info\n"); n != 0 || err != nil {
		t.Errorf("no table: %d, %v", n, err)
	}
	if n, err := mainPrefixes("Main:\n"); err == nil {
		t.Errorf("a table without a number: %d", n)
	}
}
