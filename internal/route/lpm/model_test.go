// SPDX-License-Identifier: Apache-2.0

package lpm

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gaissmai/bart"
)

// model is a table together with the routes that it should have.
type model struct {
	t     *testing.T
	table *Table
	rib   bart.Table[uint32]
	// lost are the ranges of the entries that the test expects to be lost.
	lost []netip.Prefix
}

func newModel(t *testing.T, rootBits, blocks, addrBits int) *model {
	root, memory := make([]uint32, 1<<rootBits), make([]uint32, blocks*BlockSize)
	return &model{t: t, table: New(root, memory, addrBits)}
}

func (m *model) insert(p netip.Prefix, value uint32) bool {
	m.rib.Insert(p, value)
	return m.table.Insert(p, value)
}

func (m *model) remove(p netip.Prefix) {
	m.rib.Delete(p)
	cover, value, _ := m.rib.LookupPrefixLPM(p)
	m.table.Remove(p, max(cover.Bits(), 0), value)
}

func (m *model) want(a netip.Addr) (value uint32, length int, lost bool) {
	for _, p := range m.lost {
		if p.Contains(a) {
			return 0, 0, true
		}
	}
	p, value, ok := m.rib.LookupPrefixLPM(netip.PrefixFrom(a, a.BitLen()))
	if !ok {
		return 0, 0, false
	}
	return value, p.Bits(), false
}

// check compares the answers for some addresses.
func (m *model) check(addrs ...netip.Addr) {
	for _, a := range addrs {
		if a.BitLen() != m.table.addrBits {
			continue // Prev of the first address, or Next of the last
		}
		value, length, lost := m.table.Lookup(a)
		if v, l, gone := m.want(a); v != value || l != length || gone != lost {
			m.t.Helper()
			m.t.Fatalf("%v: value %d of /%d, lost %v; want %d of /%d, %v", a, value, length, lost, v, l, gone)
		}
	}
}

// around checks addresses in p, which a change to p may affect, and next to p, which it must not.
func (m *model) around(rng *rand.Rand, p netip.Prefix) {
	first, last := p.Addr(), lastOf(p)
	m.check(first, last, first.Prev(), last.Next(), randomIn(rng, p), randomIn(rng, p))
}

// audit checks all of the table: every answer is right, every block is in one place and needed, and every lost entry is
// counted.
func (m *model) audit() {
	m.t.Helper()
	t := m.table
	places := make([]int, t.BlocksTotal())
	lost := 0
	var walk func(entries []uint32, at [16]byte, done int)
	walk = func(entries []uint32, at [16]byte, done int) {
		for i, e := range entries {
			switch {
			case done == t.rootBits:
				at = [16]byte{}
				for k := range done / 8 {
					at[k] = byte(i >> (done - 8 - k*8))
				}
			default:
				at[done/8-1] = byte(i)
			}
			if e&EntryBlock == 0 {
				if e == entryLost {
					lost++
				}
				p := netip.PrefixFrom(m.addr(at), done)
				m.check(p.Addr(), lastOf(p))
				continue
			}
			if done == t.addrBits {
				m.t.Fatal("a block below the last level")
			}
			places[e&EntryNumber]++
			b := t.block(e)
			if uniform(b) && b[0]&EntryBlock == 0 && lengthOf(b[0]) <= done {
				m.t.Fatalf("a block that is not needed at %v/%d", m.addr(at), done)
			}
			walk(b, at, done+BlockBits)
		}
	}
	walk(t.root, [16]byte{}, t.rootBits)
	if lost != t.Lost() {
		m.t.Fatalf("%d entries lost, counted %d", lost, t.Lost())
	}
	for i := range t.free + t.waiting + t.fresh {
		places[t.queue[t.at(i)]]++
	}
	for n, count := range places {
		if count != 1 {
			m.t.Fatalf("block %d is in %d places", n, count)
		}
	}
}

func uniform(b []uint32) bool {
	for _, e := range b {
		if e != b[0] {
			return false
		}
	}
	return true
}

func (m *model) addr(b [16]byte) netip.Addr { return addrOf(b, m.table.addrBits) }

func addrOf(b [16]byte, addrBits int) netip.Addr {
	if addrBits == 32 {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b)
}

// bytesOf returns an address in network byte order, starting at the first byte for both families.
func bytesOf(a netip.Addr) (b [16]byte) {
	copy(b[:], a.AsSlice())
	return b
}

func lastOf(p netip.Prefix) netip.Addr {
	b := bytesOf(p.Addr())
	n := p.Addr().BitLen()
	for i := p.Bits(); i < n; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return addrOf(b, p.Addr().BitLen())
}

func randomIn(rng *rand.Rand, p netip.Prefix) netip.Addr {
	b := bytesOf(p.Addr())
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		b[i/8] |= byte(rng.UintN(2)) << (7 - i%8)
	}
	return addrOf(b, p.Addr().BitLen())
}

// randomPrefix returns a prefix anywhere or, if dense, one of a set in which many share blocks and contain each other.
func randomPrefix(rng *rand.Rand, addrBits int, dense bool) netip.Prefix {
	var b [16]byte
	for i := range b {
		b[i] = byte(rng.Uint32())
		if dense {
			b[i] = []byte{0, 1, 0x80, 0xff}[rng.IntN(4)]
			if i < 2 {
				b[i] = 10
			}
		}
	}
	length := rng.IntN(addrBits + 1)
	if dense && rng.IntN(3) > 0 {
		length = min(16+rng.IntN(18), addrBits)
	}
	return netip.PrefixFrom(addrOf(b, addrBits), length).Masked()
}
