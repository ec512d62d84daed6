// SPDX-License-Identifier: Apache-2.0

package lpm

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestLayout has the constants of the layout as numbers, since the programs rely on them.
func TestLayout(t *testing.T) {
	root, blocks := make([]uint32, 1<<24), make([]uint32, 2*256)
	table := New(root, blocks, 32)
	table.Insert(netip.MustParsePrefix("10.0.0.0/8"), 7)
	table.Insert(netip.MustParsePrefix("10.1.2.128/25"), 0x7fffff)
	table.Insert(netip.MustParsePrefix("10.1.3.4/32"), 9)
	for _, tc := range []struct {
		name      string
		got, want uint32
	}{
		{"before", root[0x09ffff], 0},
		{"first", root[0x0a0000], 8<<23 | 7},
		{"last", root[0x0affff], 8<<23 | 7},
		{"after", root[0x0b0000], 0},
		{"block 0", root[0x0a0102], 0x80000000},
		{"block 1", root[0x0a0103], 0x80000001},
		{"in block 0, before", blocks[127], 8<<23 | 7},
		{"in block 0, first", blocks[128], 25<<23 | 0x7fffff},
		{"in block 0, last", blocks[255], 25<<23 | 0x7fffff},
		{"in block 1", blocks[256+4], 32<<23 | 9},
		{"in block 1, after", blocks[256+5], 8<<23 | 7},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %#x, want %#x", tc.name, tc.got, tc.want)
		}
	}
	table.Insert(netip.MustParsePrefix("10.1.4.4/32"), 9)
	if got := root[0x0a0104]; got != 255<<23 {
		t.Errorf("lost: %#x", got)
	}

	root = make([]uint32, 1<<16)
	table = New(root, blocks, 128)
	table.Insert(netip.MustParsePrefix("2001:db8::/32"), 5)
	if got := []uint32{root[0x2001], blocks[0x0d], blocks[256+0xb8]}; !slices.Equal(got,
		[]uint32{0x80000000, 0x80000001, 32<<23 | 5}) {
		t.Errorf("IPv6: %#x", got)
	}
}

func TestRandomChanges(t *testing.T) {
	for _, g := range []struct {
		rootBits, addrBits int
		dense              bool
	}{
		{0, 32, true}, {8, 32, true}, {8, 32, false}, {16, 32, true}, {16, 32, false},
		{8, 128, true}, {16, 128, true}, {16, 128, false},
	} {
		t.Run(fmt.Sprintf("%d of %d, dense %v", g.rootBits, g.addrBits, g.dense), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(g.rootBits)))
			m := newModel(t, g.rootBits, 4096, g.addrBits)
			var present []netip.Prefix
			for step := range 1200 {
				m.table.Tick(time.Duration(step) * Grace)
				var p netip.Prefix
				grow := step%600 < 400
				switch k := rng.IntN(10); {
				case len(present) == 0 || k < 7 && grow || k < 2:
					p = randomPrefix(rng, g.addrBits, g.dense)
					if m.insert(p, uint32(rng.IntN(MaxValue+1))); !slices.Contains(present, p) {
						present = append(present, p)
					}
				case k == 9:
					// Set a value that may be the same as before.
					p = present[rng.IntN(len(present))]
					m.insert(p, uint32(rng.IntN(2)))
				case k == 8:
					// Remove a prefix that may not be in the table.
					p = randomPrefix(rng, g.addrBits, g.dense)
					m.remove(p)
					present = slices.DeleteFunc(present, func(q netip.Prefix) bool { return p == q })
				default:
					i := rng.IntN(len(present))
					p = present[i]
					present = slices.Delete(present, i, i+1)
					m.remove(p)
				}
				m.around(rng, p)
				if len(present) > 0 {
					m.around(rng, present[rng.IntN(len(present))])
				}
				// Auditing a sparse table takes long.
				if step%500 == 499 || g.dense && step%100 == 99 {
					m.audit()
				}
			}
			if m.table.Lost() > 0 {
				t.Fatal("the test has too few blocks")
			}
			for _, p := range present {
				m.remove(p)
			}
			m.audit()
			m.table.Tick(5000 * Grace)
			m.table.Tick(5001 * Grace)
			if n := m.table.BlocksUsed(); n != 0 {
				t.Errorf("%d blocks used in an empty table", n)
			}
			if slices.ContainsFunc(m.table.root, func(e uint32) bool { return e != 0 }) {
				t.Error("an empty table is not zero")
			}
		})
	}
}

// Addresses for which there is no block get the answer 0 from then on, and all others the right one.
func TestExhaustion(t *testing.T) {
	for _, blocks := range []int{0, 1, 2, 20} {
		rng := rand.New(rand.NewPCG(2, uint64(blocks)))
		m := newModel(t, 8, blocks, 32)
		var all []netip.Prefix
		for step := range 1000 {
			p := randomPrefix(rng, 32, step%4 > 0)
			if rng.IntN(3) == 0 && len(all) > 0 {
				p = all[rng.IntN(len(all))]
				m.remove(p)
			} else {
				all = append(all, p)
				// Insert succeeds unless an entry on the path to p is lost already, or becomes lost because no
				// block is free.
				before := len(m.lost)
				if ok := m.insert(p, uint32(step+1)); ok == m.lose(p) || len(m.lost) > before && m.table.free > 0 {
					t.Fatalf("insert %v: %v, %d blocks free", p, ok, m.table.free)
				}
			}
			m.table.Tick(time.Duration(step) * Grace / 2)
			m.around(rng, p)
			m.around(rng, all[rng.IntN(len(all))])
			if step%50 == 49 {
				m.audit()
			}
		}
		if m.table.Lost() == 0 || m.table.Lost() != len(m.lost) {
			t.Fatalf("%d entries lost, %d found", m.table.Lost(), len(m.lost))
		}

		m.table.Reset()
		m.lost = nil
		for _, p := range all {
			m.rib.Delete(p)
		}
		m.audit()
		m.table.Tick(2000 * Grace)
		m.table.Tick(2001*Grace - 1)
		if n := m.table.BlocksUsed(); n != blocks {
			t.Errorf("%d of %d blocks used before grace is over", n, blocks)
		}
		m.table.Tick(2001 * Grace)
		if n := m.table.BlocksUsed(); n != 0 {
			t.Errorf("%d blocks used after grace", n)
		}
		m.insert(netip.MustParsePrefix("0.0.0.0/0"), 1)
		if blocks == 20 && !m.insert(netip.MustParsePrefix("10.1.2.3/32"), 2) {
			t.Error("no blocks after Reset")
		}
		m.audit()
	}
}

// lose reports whether p lies in a lost entry, and records the entry's range if it is new.
func (m *model) lose(p netip.Prefix) bool {
	t, b := m.table, bytesOf(p.Addr())
	e, done := t.root[t.rootIndex(&b)], t.rootBits
	for e&EntryBlock != 0 && done < p.Bits() {
		e = t.block(e)[b[done/8]]
		done += BlockBits
	}
	if e != entryLost || done >= p.Bits() {
		return false
	}
	if r := netip.PrefixFrom(p.Addr(), done).Masked(); !slices.Contains(m.lost, r) {
		m.lost = append(m.lost, r)
	}
	return true
}

// A block whose entries are all the same is still needed if they come from a longer prefix than the level above has, or are
// lost.
func TestBlocksThatStay(t *testing.T) {
	m := newModel(t, 24, 1, 32)
	m.insert(netip.MustParsePrefix("10.0.0.0/8"), 1)
	left, right := netip.MustParsePrefix("10.1.2.0/25"), netip.MustParsePrefix("10.1.2.128/25")
	host := netip.MustParsePrefix("10.1.2.3/32")
	m.insert(left, 2)
	m.insert(right, 2)
	m.insert(host, 3)
	m.remove(host)
	m.remove(right)
	m.check(left.Addr(), right.Addr(), host.Addr())
	m.remove(left)
	m.check(left.Addr(), right.Addr(), host.Addr())

	m = newModel(t, 8, 1, 32)
	for i := range 256 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 24)
		if m.insert(p, 1) || !m.lose(p) {
			t.Fatalf("%v is not lost", p)
		}
	}
	m.insert(netip.MustParsePrefix("10.1.0.0/16"), 2)
	m.remove(netip.MustParsePrefix("10.1.0.0/16"))
	m.audit()
	if n := m.table.Lost(); n != 256 {
		t.Errorf("%d entries lost", n)
	}
}

func TestRemoveWhatIsNotThere(t *testing.T) {
	m := newModel(t, 16, 1, 32)
	m.insert(netip.MustParsePrefix("10.0.0.0/8"), 1)
	m.insert(netip.MustParsePrefix("10.1.2.0/24"), 2)
	for _, p := range []string{"0.0.0.0/0", "10.0.0.0/9", "10.1.0.0/16", "10.1.2.0/23", "10.1.2.0/25", "10.2.0.0/24"} {
		m.table.Remove(netip.MustParsePrefix(p), 0, 0)
		m.audit()
	}
}

// A block stays out of use and keeps its contents until Grace after the first Tick that follows its removal.
func TestGrace(t *testing.T) {
	m := newModel(t, 8, 3, 32)
	p := netip.MustParsePrefix("10.1.2.3/32")
	m.insert(netip.MustParsePrefix("10.0.0.0/8"), 1)
	m.insert(p, 2)
	m.table.Tick(10 * time.Second)
	b := m.table.block(m.table.root[10])
	m.remove(p)
	if m.table.root[10]&EntryBlock != 0 {
		t.Fatal("blocks are left")
	}
	// The removal may be right before this Tick, however long ago the last one was.
	for _, s := range []struct {
		now  time.Duration
		used int
	}{{20 * time.Second, 3}, {20*time.Second + Grace - 1, 3}, {20*time.Second + Grace, 0}} {
		m.table.Tick(s.now)
		if n := m.table.BlocksUsed(); n != s.used {
			t.Errorf("at %v: %d blocks used, want %d", s.now, n, s.used)
		}
		if !uniform(b) || b[0] != 8<<23|1 {
			t.Errorf("at %v: the block has changed", s.now)
		}
	}
	if n := m.table.BlocksTotal(); n != 3 {
		t.Errorf("%d blocks in total", n)
	}
	if !m.insert(p, 3) {
		t.Error("no block after grace")
	}
	m.audit()
}

// A table can be made in the memory of an earlier one.
func TestResetOfUsedMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	old := newModel(t, 8, 64, 32)
	for i := range 100 {
		old.insert(randomPrefix(rng, 32, true), uint32(i))
	}
	m := &model{t: t, table: New(old.table.root, old.table.blocks, 32)}
	m.table.Reset()
	m.audit()
	// Readers may still be in any of the blocks, also in those that the new table has not used.
	if m.table.Insert(netip.MustParsePrefix("10.1.2.3/32"), 1) || m.table.Lost() != 1 {
		t.Error("a block was used right after Reset")
	}
	m.table.Reset()
	m.table.Tick(0)
	m.table.Tick(Grace)
	m.insert(netip.MustParsePrefix("10.1.2.3/32"), 1)
	m.audit()
}

func TestMistakes(t *testing.T) {
	table := New(make([]uint32, 1), nil, 32)
	p := netip.MustParsePrefix("10.0.0.0/8")
	for name, f := range map[string]func(){
		"no root":               func() { New(nil, nil, 32) },
		"root of 3":             func() { New(make([]uint32, 3), nil, 32) },
		"root of 4 bits":        func() { New(make([]uint32, 16), nil, 32) },
		"64 bits":               func() { New(make([]uint32, 256), nil, 64) },
		"value":                 func() { table.Insert(p, MaxValue+1) },
		"family":                func() { table.Insert(netip.MustParsePrefix("::/0"), 1) },
		"no prefix":             func() { table.Insert(netip.Prefix{}, 1) },
		"length":                func() { table.Insert(netip.PrefixFrom(p.Addr(), 33), 1) },
		"family of the address": func() { table.Lookup(netip.IPv6Unspecified()) },
		"cover as long":         func() { table.Remove(p, 8, 1) },
		"value of the cover":    func() { table.Remove(p, 0, MaxValue+1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestNoAllocations(t *testing.T) {
	m := newModel(t, 16, 64, 128)
	p := netip.MustParsePrefix("2001:db8::/48")
	now := time.Duration(0)
	if n := testing.AllocsPerRun(100, func() {
		m.table.Insert(p, 1)
		m.table.Lookup(p.Addr())
		m.table.Remove(p, 0, 0)
		now += Grace
		m.table.Tick(now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if m.table.Lost() > 0 {
		t.Error("blocks have run out")
	}
}
