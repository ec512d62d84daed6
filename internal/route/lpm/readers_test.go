// SPDX-License-Identifier: Apache-2.0

package lpm

import (
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// walker reads a table as the programs do, one entry at a time.
type walker struct {
	table   *Table
	key     [16]byte
	entries []uint32
	index   int
	done    int
}

func newWalker(t *Table, a netip.Addr) walker {
	key := bytesOf(a)
	return walker{t, key, t.root, t.rootIndex(&key), t.rootBits}
}

// step reads an entry. end is true if it is the answer.
func (w *walker) step() (e uint32, end bool) {
	if e = atomic.LoadUint32(&w.entries[w.index]); e&EntryBlock == 0 {
		return e, true
	}
	w.entries, w.index = w.table.block(e), int(w.key[w.done/8])
	w.done += BlockBits
	return e, false
}

// Readers that pause anywhere in a lookup, for less than Grace, get an answer that was right at some time since they began.
func TestSlowReaders(t *testing.T) {
	for addrBits, blocks := range map[int]int{32: 200, 128: 1000} {
		rng := rand.New(rand.NewPCG(4, uint64(addrBits)))
		m := newModel(t, 8, blocks, addrBits)
		type reader struct {
			walker
			addr  netip.Addr
			begin time.Duration
			right []uint32
		}
		var readers []*reader
		// advance makes a reader read one entry, and reports whether it has the answer.
		advance := func(r *reader) bool {
			e, end := r.step()
			if end && !slices.Contains(r.right, e) {
				t.Fatalf("%v: %#x, right were %#x", r.addr, e, r.right)
			}
			return end
		}
		answer := func(a netip.Addr) uint32 {
			value, length, _ := m.want(a)
			return pack(length, value)
		}
		var present []netip.Prefix
		reused, now := 0, time.Duration(0)
		for step := range 10000 {
			// Alternate between many and few prefixes, so that blocks are taken and given back.
			if len(present) < 1+step/40%2*30 {
				p := randomPrefix(rng, addrBits, true)
				m.insert(p, uint32(step))
				present = append(present, p)
			} else {
				i := rng.IntN(len(present))
				m.remove(present[i])
				present = slices.Delete(present, i, i+1)
			}
			for _, r := range readers {
				r.right = append(r.right, answer(r.addr))
			}
			now += time.Duration(rng.Int64N(int64(Grace / 4)))
			readers = slices.DeleteFunc(readers, func(r *reader) bool {
				done := rng.IntN(4) == 0 && advance(r)
				for !done && now-r.begin >= Grace {
					done = advance(r)
				}
				return done
			})
			free := m.table.free
			m.table.Tick(now)
			reused += m.table.free - free
			for len(readers) < 100 {
				a := randomIn(rng, randomPrefix(rng, addrBits, true))
				if len(present) > 0 {
					a = randomIn(rng, present[rng.IntN(len(present))])
				}
				readers = append(readers, &reader{newWalker(m.table, a), a, now, []uint32{answer(a)}})
			}
		}
		if m.table.Lost() > 0 || reused < 2*m.table.BlocksTotal() {
			t.Errorf("%d entries lost, %d blocks used again: the test has the wrong number of blocks", m.table.Lost(), reused)
		}
	}
}

// Concurrent readers get the value of a prefix that contains the address, even in the middle of a change. The prefix is
// never shorter than the longest one that is always in the table.
func TestConcurrentReaders(t *testing.T) {
	for addrBits, blocks := range map[int]int{32: 200, 128: 1000} {
		rng := rand.New(rand.NewPCG(5, uint64(addrBits)))
		m := newModel(t, 8, blocks, addrBits)
		// A prefix's index is its value. The first ones are always in the table, among them one that contains all others.
		const stay = 4
		var prefixes []netip.Prefix
		for len(prefixes) < 16 {
			p := randomPrefix(rng, addrBits, true)
			if len(prefixes) == 0 {
				p = netip.PrefixFrom(p.Addr(), 8).Masked()
			}
			if p.Bits() >= 8 && !slices.Contains(prefixes, p) {
				prefixes = append(prefixes, p)
			}
		}
		for i, p := range prefixes[:stay] {
			m.insert(p, uint32(i))
		}
		// least is the shortest prefix length that an answer for each of addrs may have.
		addrs, least := make([]netip.Addr, 1000), make([]int, 1000)
		for i := range addrs {
			addrs[i] = randomIn(rng, prefixes[rng.IntN(len(prefixes))])
			_, least[i], _ = m.want(addrs[i])
		}

		var stop, wrong atomic.Bool
		var rounds [2]atomic.Int64
		var readers sync.WaitGroup
		for k := range rounds {
			readers.Go(func() {
				rng := rand.New(rand.NewPCG(6, uint64(k)))
				for !stop.Load() {
					i := rng.IntN(len(addrs))
					w := newWalker(m.table, addrs[i])
					e, end := w.step()
					for !end {
						if rng.IntN(8) == 0 {
							runtime.Gosched() // let changes happen before it reads the next level
						}
						e, end = w.step()
					}
					rounds[k].Add(1)
					n := int(e & EntryNumber)
					if n >= len(prefixes) || !prefixes[n].Contains(addrs[i]) || lengthOf(e) != prefixes[n].Bits() ||
						lengthOf(e) < least[i] {
						t.Errorf("%v: %#x, at least /%d was always there", addrs[i], e, least[i])
						wrong.Store(true)
						return
					}
				}
			})
		}
		there := make([]bool, len(prefixes))
		now := time.Duration(0)
		for step := 0; step < 20000 && !wrong.Load(); step++ {
			i := stay + rng.IntN(len(prefixes)-stay)
			if there[i] {
				m.remove(prefixes[i])
			} else {
				m.insert(prefixes[i], uint32(i))
			}
			there[i] = !there[i]
			if m.table.free > blocks/4 {
				continue
			}
			// Instead of waiting for Grace, wait until every reader has ended the lookup that was running.
			m.table.Tick(now)
			for k := range rounds {
				for n := rounds[k].Load(); n == rounds[k].Load() && !wrong.Load(); {
					runtime.Gosched()
				}
			}
			now += Grace
			m.table.Tick(now)
		}
		stop.Store(true)
		readers.Wait()
		if m.table.Lost() > 0 || now < 10*Grace {
			t.Errorf("%d entries lost, %v until the end: the test has the wrong number of blocks", m.table.Lost(), now)
		}
		m.audit()
	}
}

// Once a reader may get an answer for an address, no reader gets an earlier one, not even from a block that has just come
// into use.
func TestAnswersDoNotGoBack(t *testing.T) {
	m := newModel(t, 8, 4096, 32)
	around, host := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.255.255.0/32")
	asked := lastOf(around) // in the same blocks as the host, at their ends
	var value, rounds atomic.Uint32
	var stop atomic.Bool
	var reader sync.WaitGroup
	reader.Go(func() {
		for !stop.Load() {
			least := value.Load()
			if got, _, _ := m.table.Lookup(asked); got < least {
				t.Errorf("value %d after %d", got, least)
				stop.Store(true)
			}
			rounds.Add(1)
		}
	})
	now := time.Duration(0)
	for step := uint32(1); step < 40000 && !stop.Load(); step++ {
		m.table.Insert(around, step)
		value.Store(step)
		m.table.Insert(host, step)
		m.table.Remove(host, around.Bits(), step)
		if m.table.free > 10 {
			continue
		}
		m.table.Tick(now)
		for n := rounds.Load(); n == rounds.Load() && !stop.Load(); {
			runtime.Gosched()
		}
		now += Grace
		m.table.Tick(now)
	}
	stop.Store(true)
	reader.Wait()
	if m.table.Lost() > 0 {
		t.Errorf("%d entries lost: the test has too few blocks", m.table.Lost())
	}
}
