// SPDX-License-Identifier: Apache-2.0

package lpm

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// family has the sizes of one family's table, as in the programs, with room for the routes of the Internet.
type family struct {
	name                       string
	rootBits, addrBits, blocks int
}

var families = []family{{"IPv4", 24, 32, 1 << 14}, {"IPv6", 16, 128, 1 << 16}}

// internet returns the routes of the Internet in order, from the test data of package bart.
var internet = sync.OnceValues(func() ([]netip.Prefix, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/gaissmai/bart").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	f, err := os.Open(filepath.Join(strings.TrimSpace(string(dir)), "internal/tests/testdata/prefixes.txt.gz"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var prefixes []netip.Prefix
	lines := bufio.NewScanner(z) // the file has DOS line ends, which it removes
	for lines.Scan() {
		p, err := netip.ParsePrefix(lines.Text())
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, p)
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return prefixes, lines.Err()
})

func internetOf(tb testing.TB, addrBits int) []netip.Prefix {
	all, err := internet()
	if err != nil {
		tb.Fatal(err)
	}
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return p.Addr().BitLen() != addrBits })
}

func TestInternet(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 7))
			prefixes := internetOf(t, f.addrBits)
			if len(prefixes) < 100000 {
				t.Fatalf("only %d prefixes", len(prefixes))
			}
			load := func(order string) *model {
				m := newModel(t, f.rootBits, f.blocks, f.addrBits)
				// A map's pages exist from the beginning. Touch these, so that page faults do not count.
				clear(m.table.root)
				clear(m.table.blocks)
				begin := time.Now()
				for i, p := range prefixes {
					m.table.Insert(p, uint32(i))
				}
				took := time.Since(begin)
				for i, p := range prefixes {
					m.rib.Insert(p, uint32(i))
				}
				t.Logf("%d prefixes, %s: %d blocks used, %v, %d ns for each", len(prefixes), order, m.table.BlocksUsed(),
					took, took.Nanoseconds()/int64(len(prefixes)))
				if n := m.table.Lost(); n > 0 {
					t.Fatalf("%d entries lost", n)
				}
				return m
			}
			used := load("in order").table.BlocksUsed()
			rng.Shuffle(len(prefixes), func(i, k int) { prefixes[i], prefixes[k] = prefixes[k], prefixes[i] })
			m := load("in random order")
			if n := m.table.BlocksUsed(); n != used {
				t.Errorf("%d blocks used, in order %d", n, used)
			}
			everything := netip.PrefixFrom(prefixes[0].Addr(), 0).Masked()
			for range 200000 / 6 {
				m.around(rng, prefixes[rng.IntN(len(prefixes))])
				m.check(randomIn(rng, everything))
			}

			m.insert(everything, 5)
			for i, p := range prefixes {
				if m.remove(p); i%100 == 0 {
					m.around(rng, p)
				}
			}
			m.remove(everything)
			m.table.Tick(0)
			m.table.Tick(Grace)
			if n := m.table.BlocksUsed(); n != 0 {
				t.Errorf("%d blocks used in an empty table", n)
			}
			if slices.ContainsFunc(m.table.root, func(e uint32) bool { return e != 0 }) {
				t.Error("an empty table is not zero")
			}
		})
	}
}

// benchTable has the routes of the Internet, and addresses that it routes.
func benchTable(b *testing.B, f family) (*Table, []netip.Prefix, []netip.Addr) {
	rng := rand.New(rand.NewPCG(8, 8))
	prefixes := internetOf(b, f.addrBits)
	table := New(make([]uint32, 1<<f.rootBits), make([]uint32, f.blocks*BlockSize), f.addrBits)
	for i, p := range prefixes {
		table.Insert(p, uint32(i%1000))
	}
	addrs := make([]netip.Addr, 1<<16)
	for i := range addrs {
		addrs[i] = randomIn(rng, prefixes[rng.IntN(len(prefixes))])
	}
	return table, prefixes, addrs
}

func BenchmarkLookup(b *testing.B) {
	for _, f := range families {
		b.Run(f.name, func(b *testing.B) {
			table, _, addrs := benchTable(b, f)
			for i := 0; b.Loop(); i++ {
				table.Lookup(addrs[i%len(addrs)])
			}
		})
	}
}

// BenchmarkChange adds a route to a full table and removes it.
func BenchmarkChange(b *testing.B) {
	for _, f := range families {
		b.Run(f.name, func(b *testing.B) {
			table, _, addrs := benchTable(b, f)
			now := time.Duration(0)
			for i := 0; b.Loop(); i++ {
				p, _ := addrs[i%len(addrs)].Prefix(f.addrBits)
				value, length, _ := table.Lookup(p.Addr())
				if length == f.addrBits {
					continue
				}
				table.Insert(p, 1)
				table.Remove(p, length, value)
				now += Grace
				table.Tick(now)
			}
		})
	}
}

// BenchmarkDefaultRoute changes the default route's next hop, which looks at every entry.
func BenchmarkDefaultRoute(b *testing.B) {
	for _, f := range families {
		b.Run(f.name, func(b *testing.B) {
			table, prefixes, _ := benchTable(b, f)
			everything := netip.PrefixFrom(prefixes[0].Addr(), 0).Masked()
			for i := 0; b.Loop(); i++ {
				table.Insert(everything, uint32(i%2))
			}
		})
	}
}
