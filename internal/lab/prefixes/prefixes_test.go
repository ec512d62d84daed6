// SPDX-License-Identifier: Apache-2.0

package prefixes

import (
	"compress/gzip"
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// full is the real table, read once for all tests.
var full = sync.OnceValues(func() (lists [2][]netip.Prefix, err error) {
	dir, err := os.Getwd()
	if err != nil {
		return lists, err
	}
	path, err := Find(context.Background(), dir)
	if err != nil {
		return lists, err
	}
	lists[0], lists[1], err = Load(path)
	return lists, err
})

func table(t *testing.T) (v4, v6 []netip.Prefix) {
	t.Helper()
	lists, err := full()
	if err != nil {
		t.Fatal(err)
	}
	return lists[0], lists[1]
}

// write returns a directory with a table in it.
func write(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func parse(words string) []netip.Prefix {
	var list []netip.Prefix
	for _, s := range strings.Fields(words) {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

// TestLoadFullTable wants the numbers of prefixes that the module documents.
func TestLoadFullTable(t *testing.T) {
	v4, v6 := table(t)
	if len(v4) != 901_899 || len(v6) != 160_147 {
		t.Errorf("%d IPv4 and %d IPv6 prefixes", len(v4), len(v6))
	}
	for name, list := range map[string][]netip.Prefix{"IPv4": v4, "IPv6": v6} {
		if !slices.IsSortedFunc(list, netip.Prefix.Compare) {
			t.Errorf("%s is not in order", name)
		}
		for _, p := range list {
			if p.Addr().Is4() != (name == "IPv4") || p != p.Masked() {
				t.Fatalf("%s has %v", name, p)
			}
		}
	}
}

func TestLoad(t *testing.T) {
	dir := write(t, "2001:db8::/32\r\n10.1.0.0/16\r\n\r\n10.0.0.0/8\r\n10.1.0.0/16\r\n10.0.0.0/16")
	for _, path := range []string{dir, filepath.Join(dir, File)} {
		v4, v6, err := Load(path)
		if err != nil || !slices.Equal(v4, parse("10.0.0.0/8 10.0.0.0/16 10.1.0.0/16")) ||
			!slices.Equal(v6, parse("2001:db8::/32")) {
			t.Errorf("%s: %v %v %v", path, v4, v6, err)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	plain := t.TempDir()
	if err := os.WriteFile(filepath.Join(plain, File), []byte("10.0.0.0/8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		write(t, "10.0.0.0/8\n10.0.0.0\n"):  `line 2, "10.0.0.0", is no prefix`,
		write(t, "10.0.0.1/8\n"):            `line 1, "10.0.0.1/8", is no prefix`,
		plain:                               "lab build",
		filepath.Join(t.TempDir(), "never"): "lab build",
	} {
		if _, _, err := Load(path); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one line with %q", err, want)
		}
	}
}

func TestWithout(t *testing.T) {
	got := Without(parse("0.0.0.0/0 0.1.0.0/16 10.0.0.0/8 10.2.3.0/24 11.0.0.0/8"), parse("0.0.0.0/8 10.2.0.0/16"))
	if want := parse("11.0.0.0/8"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestSample(t *testing.T) {
	v4, _ := table(t)
	for _, n := range []int{0, 1, 2000, len(v4) - 1, len(v4), len(v4) + 1} {
		some := Sample(v4, n)
		if want := min(n, len(v4)); len(some) != want {
			t.Errorf("a sample of %d has %d", n, len(some))
		}
		if !slices.IsSortedFunc(some, netip.Prefix.Compare) || len(slices.Compact(slices.Clone(some))) != len(some) {
			t.Errorf("a sample of %d has duplicates or is not in order", n)
		}
		if !slices.Equal(some, Sample(v4, n)) {
			t.Errorf("two samples of %d differ", n)
		}
	}
	// The sample has both ends of the address space.
	some := Sample(v4, 2000)
	if some[0].Addr().As4()[0] > 8 || some[1999].Addr().As4()[0] < 216 {
		t.Errorf("a sample from %v to %v", some[0], some[1999])
	}
}

// TestGrowForCapacity makes tables of the sizes that the capacity tests use.
func TestGrowForCapacity(t *testing.T) {
	v4, v6 := table(t)
	for _, tc := range []struct {
		list       []netip.Prefix
		n, longest int
	}{{v4, 1_050_000, 24}, {v6, 240_000, 48}} {
		grown, err := Grow(tc.list, tc.n)
		if err != nil || len(grown) != tc.n {
			t.Fatalf("%d prefixes: %v", len(grown), err)
		}
		have := make(map[netip.Prefix]bool)
		for i, p := range grown {
			if i > 0 && grown[i-1].Compare(p) >= 0 {
				t.Fatalf("%v comes before %v", grown[i-1], p)
			}
			have[p] = true
		}
		old := make(map[netip.Prefix]bool)
		for _, p := range tc.list {
			if old[p] = true; !have[p] {
				t.Fatalf("%v is lost", p)
			}
		}
		for _, p := range grown {
			if !old[p] && (p.Bits() > tc.longest || p != p.Masked() || !have[netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked()]) {
				t.Fatalf("%v is no half of a prefix that is there, or too long", p)
			}
		}
	}
}

func TestGrow(t *testing.T) {
	got, err := Grow(parse("10.0.0.0/23 10.2.0.0/22"), 5)
	if want := parse("10.0.0.0/23 10.0.0.0/24 10.0.1.0/24 10.2.0.0/22 10.2.0.0/23"); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	// A /46 contains 1 + 2 + 4 prefixes up to /48.
	got, err = Grow(parse("2001:db8::/46"), 7)
	if err != nil || len(got) != 7 || got[6] != netip.MustParsePrefix("2001:db8:3::/48") {
		t.Errorf("%v, %v", got, err)
	}
	if _, err = Grow(parse("2001:db8::/46"), 8); err == nil || !strings.Contains(err.Error(), "7 at most") {
		t.Errorf("more than there are: %v", err)
	}
}

func TestFindElsewhere(t *testing.T) {
	if path, err := Find(t.Context(), t.TempDir()); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("outside of a checkout: %q, %v", path, err)
	}
}
