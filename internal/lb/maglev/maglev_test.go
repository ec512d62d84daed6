// SPDX-License-Identifier: Apache-2.0

package maglev

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const size = 65537

// backends returns n backends whose keys are addresses from 10.0.0.0 on.
func backends(n int, weight func(i int) uint32) []Backend {
	list := make([]Backend, n)
	for i := range list {
		list[i] = Backend{Key: binary.BigEndian.AppendUint32(nil, 10<<24+uint32(i)), Weight: weight(i)}
	}
	return list
}

func equal(int) uint32 { return 1 }

// various are weights that nearly all differ, up to 65,535.
func various(i int) uint32 { return uint32(1 + i*7919%65535) }

func table(t *testing.T, size int, list []Backend) []int32 {
	t.Helper()
	got, err := Table(size, list)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != size {
		t.Fatalf("%d entries, want %d", len(got), size)
	}
	return got
}

// counts returns how many entries each of n backends has.
func counts(t *testing.T, table []int32, n int) []int {
	t.Helper()
	count := make([]int, n)
	for at, backend := range table {
		if backend < 0 || int(backend) >= n {
			t.Fatalf("entry %d has backend %d of %d", at, backend, n)
		}
		count[backend]++
	}
	return count
}

// TestEqualShares has backends of equal weight, whose numbers of entries differ by one at most.
func TestEqualShares(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 10, 99, 100, 333, 500, 655, 656, 979, 1000, 10000, size} {
		count := counts(t, table(t, size, backends(n, equal)), n)
		least, most, mean := slices.Min(count), slices.Max(count), float64(size)/float64(n)
		if most-least > 1 {
			t.Errorf("%d backends: from %d to %d entries, want a difference of 1 at most", n, least, most)
		}
		if worst := max(float64(most)-mean, mean-float64(least)) / mean; n <= size/100 && worst > 0.01 {
			t.Errorf("%d backends: a share is %.2f %% off the mean", n, worst*100)
		}
	}
}

// TestWeightedShares checks that shares of the table are as the weights.
func TestWeightedShares(t *testing.T) {
	for name, c := range map[string]struct {
		n      int
		weight func(i int) uint32
		within float64 // largest deviation, in entries
	}{
		"equal":            {100, func(int) uint32 { return 7 }, 1},
		"1 to 3":           {1000, func(i int) uint32 { return uint32(1 + i%3) }, 1},
		"1 to 100":         {100, func(i int) uint32 { return uint32(1 + i) }, 1},
		"various":          {300, various, 1},
		"one beside 1,000": {2, func(i int) uint32 { return []uint32{1, 1000}[i] }, 1},
		// The shares of weight 1 are 43.29 entries, and all of them are rounded down.
		"one of 1,014 beside 500": {501, func(i int) uint32 { return []uint32{1014, 1}[min(i, 1)] }, 150},
		"largest":                 {3, func(i int) uint32 { return []uint32{math.MaxUint32, math.MaxUint32 - 1, 1}[i] }, 1},
		"far below one entry":     {655, func(i int) uint32 { return []uint32{math.MaxUint32, 1}[min(i, 1)] }, size / 100},
	} {
		list := backends(c.n, c.weight)
		sum := 0.0
		for _, b := range list {
			sum += float64(b.Weight)
		}
		for i, got := range counts(t, table(t, size, list), c.n) {
			if want := size * float64(list[i].Weight) / sum; math.Abs(float64(got)-want) > c.within || got == 0 {
				t.Errorf("%s: weight %d has %d entries, want %.2f", name, list[i].Weight, got, want)
			}
		}
	}
}

// paper fills a table as section 3.4 of the paper does: in rounds in which each backend takes the next free entry of its
// permutation.
func paper(t *testing.T, size int, list []Backend) []int32 {
	t.Helper()
	walks, err := walksOf(uint32(size), list)
	if err != nil {
		t.Fatal(err)
	}
	next := make([]int, len(walks))
	entry := make([]int32, size)
	for i := range entry {
		entry[i] = -1
	}
	for n := 0; ; {
		for i, w := range walks {
			at := (int(w.at) + next[i]*int(w.skip)) % size
			for entry[at] >= 0 {
				next[i]++
				at = (int(w.at) + next[i]*int(w.skip)) % size
			}
			entry[at] = w.backend
			if n++; n == size {
				return entry
			}
		}
	}
}

func TestEqualWeightsAreAsInThePaper(t *testing.T) {
	for _, size := range []int{2, 3, 7, 251, 65537} {
		for _, n := range []int{1, 2, 3, 6, 100, 1000} {
			if n > size {
				continue
			}
			list := backends(n, func(int) uint32 { return 5 })
			if got, want := table(t, size, list), paper(t, size, list); !slices.Equal(got, want) {
				t.Errorf("%d backends, %d entries: not as in the paper", n, size)
			}
		}
	}
}

// disruption compares tables of the same n backends. It returns how many entries have another backend, and how many would have
// one at least with these shares.
func disruption(t *testing.T, a, b []int32, n int) (changed, least int) {
	t.Helper()
	before, after := counts(t, a, n), counts(t, b, n)
	for i := range before {
		least += max(0, after[i]-before[i])
	}
	for i := range a {
		if a[i] != b[i] {
			changed++
		}
	}
	return changed, least
}

// TestDisruption bounds the part of the table that changes without need. The bounds are the measured values and a quarter more.
// With equal weights this is the disruption of the paper's algorithm.
func TestDisruption(t *testing.T) {
	half := func(w uint32) uint32 { return w / 2 }
	double := func(w uint32) uint32 { return w * 2 }
	gone := func(uint32) uint32 { return 0 }
	for _, c := range []struct {
		name    string
		n       int
		weight  func(int) uint32
		touched int
		change  func(uint32) uint32
		extra   float64 // bound of the mean of all tries, in percent of the table
	}{
		{"one of 10 goes", 10, equal, 1, gone, 0.4},
		{"one of 100 goes", 100, equal, 1, gone, 0.7},
		{"one of 1,000 goes", 1000, equal, 1, gone, 0.7},
		{"10 of 1,000 go", 1000, equal, 10, gone, 3},
		{"one of 1,000 has twice its weight", 1000, equal, 1, double, 0.7},
		{"one of various goes", 1000, various, 1, gone, 0.7},
		{"one of various has half its weight", 1000, various, 1, half, 0.4},
		{"50 of various have half their weight", 1000, various, 50, half, 3.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, 2))
			before := table(t, size, backends(c.n, c.weight))
			const tries = 8
			var extra, worst float64
			for range tries {
				list := backends(c.n, c.weight)
				for _, i := range rnd.Perm(c.n)[:c.touched] {
					list[i].Weight = c.change(list[i].Weight)
				}
				// The way back changes as many entries, so this holds for adding backends too.
				changed, least := disruption(t, before, table(t, size, list), c.n)
				if least == 0 {
					t.Fatal("nothing had to change")
				}
				this := 100 * float64(changed-least) / size
				extra += this / tries
				worst = max(worst, this)
			}
			t.Logf("%.2f %% of the table, at the worst %.2f %%", extra, worst)
			if extra > c.extra {
				t.Errorf("%.2f %% of the table changed without need, want %.2f %% at most", extra, c.extra)
			}
		})
	}
}

// keysOf returns the keys of the backends in a table's entries.
func keysOf(table []int32, list []Backend) []string {
	keys := make([]string, len(table))
	for at, backend := range table {
		keys[at] = string(list[backend].Key)
	}
	return keys
}

// TestSets has random sets of backends. Their order, a common factor of the weights and backends of weight 0 make no difference.
func TestSets(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		size := nextPrime(50 + rnd.IntN(3000))
		limit := []int{1, 3, 100, 65535}[rnd.IntN(4)]
		list := backends(1+rnd.IntN(50), func(int) uint32 { return uint32(rnd.IntN(limit + 1)) })
		for i := range list {
			list[i].Key = append(list[i].Key, make([]byte, rnd.IntN(13))...)
		}
		list[0].Weight = 1
		want := keysOf(table(t, size, list), list)
		for name, change := range map[string]func([]Backend) []Backend{
			"another order": func(l []Backend) []Backend {
				rnd.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
				return l
			},
			"turned around": func(l []Backend) []Backend { slices.Reverse(l); return l },
			"scaled": func(l []Backend) []Backend {
				for i := range l {
					l[i].Weight *= 65521
				}
				return l
			},
			"without those of weight 0": func(l []Backend) []Backend {
				return slices.DeleteFunc(l, func(b Backend) bool { return b.Weight == 0 })
			},
		} {
			other := change(slices.Clone(list))
			if got := keysOf(table(t, size, other), other); !slices.Equal(got, want) {
				t.Fatalf("seed %d, %s: another table", seed, name)
			}
		}
		for i, n := range counts(t, table(t, size, list), len(list)) {
			if (n == 0) != (list[i].Weight == 0) {
				t.Fatalf("seed %d: weight %d has %d entries", seed, list[i].Weight, n)
			}
		}
	}
}

// TestGolden pins tables. They must never change, because load balancers of two versions may share VIPs.
func TestGolden(t *testing.T) {
	list := []Backend{{[]byte("a"), 1}, {[]byte("b"), 2}, {[]byte("c"), 3}, {[]byte("d"), 0}}
	if got, want := fmt.Sprint(table(t, 31, list)), "[2 0 1 2 1 0 2 2 2 1 2 1 1 0 2 2 2 1 2 1 2 2 2 2 0 1 2 1 0 1 2]"; got != want {
		t.Errorf("31 entries:\n%s, want\n%s", got, want)
	}
	big := table(t, size, backends(1000, func(i int) uint32 { return uint32(1 + i%6) }))
	sum := sha256.New()
	if err := binary.Write(sum, binary.BigEndian, big); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%d %x", big[:8], sum.Sum(nil)[:8]), "[809 29 515 336 868 557 814 363] 530a135a69749644"; got != want {
		t.Errorf("%d entries, the first ones and the sum of all: %s, want %s", size, got, want)
	}
}

// TestRefused wants errors for wrong sizes and sets of backends.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		size int
		list []Backend
		want string
	}{
		"no prime":   {65536, backends(2, equal), "a table of 65536 entries: the size has to be a prime below 2^31: use 65537"},
		"negative":   {-5, backends(2, equal), "use 2"},
		"too large":  {math.MaxInt32 + 1, backends(2, equal), "use 2147483647"},
		"too small":  {7, backends(8, equal), "a table of 7 entries is too small for 8 backends: use 809"},
		"twice":      {7, slices.Concat(backends(3, equal), backends(1, equal)), "backends 0 and 3 have the same key 0a000000"},
		"twice at 0": {7, slices.Concat(backends(3, equal), backends(1, func(int) uint32 { return 0 })), "backends 0 and 3"},
	} {
		if got, err := Table(c.size, c.list); err == nil || got != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	for name, list := range map[string][]Backend{"nil": nil, "weights 0": backends(3, func(int) uint32 { return 0 })} {
		if _, err := Table(size, list); !errors.Is(err, ErrNoBackend) {
			t.Errorf("%s: %v, want %v", name, err, ErrNoBackend)
		}
	}
}

func TestPrime(t *testing.T) {
	for n, want := range map[int]bool{
		-7: false, 0: false, 1: false, 2: true, 3: true, 4: false, 9: false, 25: false, 65535: false, 65537: true,
		655373: true, 655379: true, 65537 * 65537: false, math.MaxInt32: true, 46337 * 46337: false,
	} {
		if Prime(n) != want {
			t.Errorf("%d: %v, want %v", n, !want, want)
		}
	}
}

func BenchmarkTable(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10000} {
		for name, weight := range map[string]func(int) uint32{"equal": equal, "various": various} {
			list := backends(n, weight)
			b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
				for b.Loop() {
					if _, err := Table(size, list); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
