// SPDX-License-Identifier: Apache-2.0

// Package lpm writes a table for longest-prefix match into memory that XDP programs read, without locks, while it
// changes. The memory is that of two array maps, which are mapped into this process.
//
// A lookup is a chain of dependent reads, and the layout keeps it short. The first level, the root, is indexed by the
// top bits of the address. Each further level is a block of 256 entries for the next 8 bits. IPv4 has a root of 2^24
// entries (DIR-24-8; Gupta, Lin and McKeown, Infocom 1998): nearly all addresses take one read and the others two. IPv6
// has a root of 2^16 entries and takes four reads for a typical /48, fifteen at most.
//
// An entry is 32 bits, in the byte order of the machine:
//
//	bit 31      EntryBlock: the lookup goes on in the block whose number is in bits 0 to 22. The last level has no
//	            such entry. In an entry without this bit,
//	bits 30-23  are the length of the prefix that the answer comes from, 0 to 128, or LengthLost, and
//	bits 22-0   are the value.
//
// An entry of zero has the value 0 and comes from no prefix, so memory that has never been written has that answer
// everywhere. The value 0 means "ask the kernel". A lost entry has it too, so readers need not look at the length. The
// writer does: the length says which entries a prefix may overwrite. So the writer stores nothing for each prefix. Its
// caller, which has the routes anyway, says which prefix becomes visible when one is removed.
//
// For each address a reader always gets the answer from before a change or from after it. An entry is stored
// atomically. A block is filled before an entry leads to it, and its entries then repeat that entry's answer. A block
// that is no longer needed keeps its contents for Grace, by when no reader is left in it. A change is not atomic across
// several addresses.
package lpm

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"sync/atomic"
	"time"
)

// The layout of an entry. The programs have the same constants.
const (
	// EntryBlock marks an entry that leads to a block.
	EntryBlock = 1 << 31
	// EntryNumber masks a block's number, or the value.
	EntryNumber = 1<<23 - 1
	// EntryLengthShift and EntryLengthMask extract the length of the prefix: entry >> shift & mask.
	EntryLengthShift = 23
	EntryLengthMask  = 0xff
	// LengthLost is the length of entries that should have led to a block when there was none.
	LengthLost = 255

	// BlockBits is how many bits of the address a block takes.
	BlockBits = 8
	// BlockSize is the number of entries of a block.
	BlockSize = 1 << BlockBits
	// MaxBlocks is how many blocks entries can refer to.
	MaxBlocks = EntryNumber + 1
	// MaxValue is the highest value.
	MaxValue = EntryNumber
)

const (
	entryLost = LengthLost << EntryLengthShift
	// maxLevels is the number of levels below the smallest root, of one entry, for IPv6.
	maxLevels = 128 / BlockBits
)

// Table is the writer of one table. No method but Lookup may be called while another call is running.
type Table struct {
	root, blocks       []uint32
	rootBits, addrBits int
	lost               int

	// queue is a ring that starts at head. It has the numbers of all blocks that no entry leads to: first those that
	// are free, then those for which Grace has not passed (waiting), then those that wait for a Tick (fresh). since
	// has the start of Grace at the same position. The block that has been unused for longest is taken first.
	queue                      []uint32
	since                      []time.Duration
	head, free, waiting, fresh int
}

// New makes a table in the given memory, for addresses of addrBits bits: 32 for IPv4, 128 for IPv6. root has 1, 2^8, 2^16
// or 2^24 entries and is indexed by the first 0, 8, 16 or 24 bits of an address. blocks has any number of blocks of
// BlockSize entries, of which at most MaxBlocks are used. The memory must be zero; if it may not be, call Reset. New
// panics on other sizes.
func New(root, blocks []uint32, addrBits int) *Table {
	rootBits := bits.Len(uint(len(root))) - 1
	switch {
	case addrBits != 32 && addrBits != 128:
		panic(fmt.Sprintf("lpm: addresses of %d bits", addrBits))
	case rootBits < 0 || len(root) != 1<<rootBits || rootBits%BlockBits != 0 || rootBits > 24:
		panic(fmt.Sprintf("lpm: a root of %d entries", len(root)))
	}
	n := min(len(blocks)/BlockSize, MaxBlocks)
	t := &Table{
		root: root, blocks: blocks[:n*BlockSize], rootBits: rootBits, addrBits: addrBits,
		queue: make([]uint32, n), since: make([]time.Duration, n), free: n,
	}
	for i := range t.queue {
		t.queue[i] = uint32(i)
	}
	return t
}

// Insert sets the value of the addresses in p that are in no longer prefix. If p is in the table already, its value
// changes. Insert returns false if there is no room: the addresses of p, and maybe others that share its entry, are then
// lost (see Lost). It panics on a value above MaxValue and on a prefix of the other family.
//
// A prefix shorter than the root takes time in proportion to its share of the table.
func (t *Table) Insert(p netip.Prefix, value uint32) bool {
	if value > MaxValue {
		panic(fmt.Sprintf("lpm: value %d", value))
	}
	key, length := t.key(p.Addr()), prefixLen(p)
	entries, index, done := t.root, t.rootIndex(&key), t.rootBits
	for length > done {
		slot := &entries[index]
		if *slot&EntryBlock == 0 && !t.split(slot) {
			return false
		}
		entries, index = t.block(*slot), int(key[done/8])
		done += BlockBits
	}
	rest := done - length
	from := index >> rest << rest
	t.overwrite(entries[from:from+1<<rest], 0, length, pack(length, value))
	return true
}

// Remove removes p. Addresses whose value comes from p get that of the longest prefix around p that remains: coverBits is
// its length, which is shorter than p's, and coverValue its value. Both are 0 if there is none. Remove does nothing if p
// is not in the table.
func (t *Table) Remove(p netip.Prefix, coverBits int, coverValue uint32) {
	key, length := t.key(p.Addr()), prefixLen(p)
	if coverBits < 0 || coverBits >= max(length, 1) || coverValue > MaxValue {
		panic(fmt.Sprintf("lpm: remove %v, in a prefix of length %d with value %d", p, coverBits, coverValue))
	}
	var path [maxLevels]*uint32 // the entries that lead to the block with p
	depth := 0
	entries, index, done := t.root, t.rootIndex(&key), t.rootBits
	for length > done {
		slot := &entries[index]
		if *slot&EntryBlock == 0 {
			return
		}
		path[depth] = slot
		depth++
		entries, index = t.block(*slot), int(key[done/8])
		done += BlockBits
	}
	rest := done - length
	from := index >> rest << rest
	t.overwrite(entries[from:from+1<<rest], length, length, pack(coverBits, coverValue))

	// Blocks inside p exist for longer prefixes, so only those on the path to p may no longer be needed.
	for depth > 0 {
		depth--
		if !t.fold(path[depth], t.rootBits+depth*BlockBits) {
			return
		}
	}
}

// Lookup reads the table as the programs do. It returns the value for an address and the length of the prefix that the
// value comes from. Both are 0 for a lost address.
func (t *Table) Lookup(a netip.Addr) (value uint32, length int, lost bool) {
	key := t.key(a)
	done := t.rootBits
	e := atomic.LoadUint32(&t.root[t.rootIndex(&key)])
	for e&EntryBlock != 0 {
		e = atomic.LoadUint32(&t.block(e)[key[done/8]])
		done += BlockBits
	}
	if length = lengthOf(e); length == LengthLost {
		return 0, 0, true
	}
	return e & EntryNumber, length, false
}

// Lost returns how many entries needed a block when none was free. All addresses under such an entry have the value 0,
// which means to ask the kernel, until Reset: the writer does not know which prefixes are missing there.
func (t *Table) Lost() int { return t.lost }

// overwrite stores e in all entries, down to the last level, that come from prefixes of from to to bits. It leaves lost
// entries alone, since to is less than LengthLost.
func (t *Table) overwrite(entries []uint32, from, to int, e uint32) {
	for i := range entries {
		// Only this goroutine stores entries, so the load need not be atomic.
		old := entries[i]
		if old&EntryBlock != 0 {
			t.overwrite(t.block(old), from, to, e)
		} else if n := lengthOf(old); n >= from && n <= to && old != e {
			atomic.StoreUint32(&entries[i], e)
		}
	}
}

// split replaces an entry by one that leads to a block with the same answer. It returns false if no block is free, or if
// the entry is lost.
func (t *Table) split(slot *uint32) bool {
	e := *slot
	if e == entryLost {
		return false
	}
	n, ok := t.take()
	if !ok {
		t.lost++
		atomic.StoreUint32(slot, entryLost)
		return false
	}
	// No reader is in the block yet, and the atomic store below is ordered after these.
	b := t.block(n)
	for i := range b {
		b[i] = e
	}
	atomic.StoreUint32(slot, EntryBlock|n)
	return true
}

// fold is the opposite of split: if all entries of a block are the same answer, the answer replaces the entry that leads
// to the block. done is how many bits of the address the levels above take. An answer from a longer prefix stays, and so
// does a lost one.
func (t *Table) fold(slot *uint32, done int) bool {
	b := t.block(*slot)
	e := b[0]
	if e&EntryBlock != 0 || lengthOf(e) > done {
		return false
	}
	for _, other := range b[1:] {
		if other != e {
			return false
		}
	}
	n := *slot & EntryNumber
	atomic.StoreUint32(slot, e)
	t.retire(n)
	return true
}

// block returns the block that an entry leads to. A block's number works too.
func (t *Table) block(e uint32) []uint32 {
	i := int(e&EntryNumber) * BlockSize
	return t.blocks[i : i+BlockSize : i+BlockSize]
}

// rootIndex returns the index of a key in the root.
func (t *Table) rootIndex(key *[16]byte) int {
	return int(binary.BigEndian.Uint32(key[:]) >> (32 - t.rootBits))
}

// key returns an address in network byte order. An IPv4 address is in the first four bytes.
func (t *Table) key(a netip.Addr) (key [16]byte) {
	if a.BitLen() != t.addrBits {
		panic(fmt.Sprintf("lpm: address %v in a table for addresses of %d bits", a, t.addrBits))
	}
	if t.addrBits == 32 {
		k := a.As4()
		copy(key[:], k[:])
		return key
	}
	return a.As16()
}

func prefixLen(p netip.Prefix) int {
	if !p.IsValid() {
		panic("lpm: invalid prefix")
	}
	return p.Bits()
}

func pack(length int, value uint32) uint32 { return uint32(length)<<EntryLengthShift | value }

func lengthOf(e uint32) int { return int(e >> EntryLengthShift & EntryLengthMask) }
