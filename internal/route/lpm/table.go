// SPDX-License-Identifier: Apache-2.0

// Package lpm writes a table for longest-prefix match into memory that others read without locks while it changes:
// the XDP programs, through two array maps that are mapped into this process.
//
// A packet costs as few reads as possible, each depending on the one before: a first level, the root, is indexed by
// the top bits of the address, and each further level is a block of 256 entries for the next 8 bits. With a root of
// 2^24 entries for IPv4 (DIR-24-8; Gupta, Lin and McKeown, Infocom 1998) nearly all addresses take one read and the
// others two. IPv6 has a root of 2^16 entries and takes four for a typical /48, at most fifteen.
//
// An entry is 32 bits, in the byte order of the machine:
//
//	bit 31    EntryBlock: go on in the block with the number in bits 0 to 22. The last level has no such entry.
//	          Otherwise the answer is here, and
//	bits 30-23  is the length of the prefix that it comes from, 0 to 128, or LengthLost
//	bits 22-0   is the value.
//
// All bits zero is the value 0 of no prefix: memory that nobody has written to has that answer everywhere. It stands
// for "ask the kernel", as does a lost entry, whose value is 0 too, so that readers need not look at the length. It is
// there for the writer: it says which entries a prefix may overwrite, so that the writer keeps nothing for each prefix
// and its caller, who has the routes anyway, only says which prefix becomes visible behind a removed one.
//
// At every instant a reader gets for each address the answer from before a change or from after it. An entry is stored
// whole. A block is full before an entry leads to it, and its entries then say what that entry said. A block that has
// become superfluous keeps its contents for Grace: no reader that has found the way into it is still there by then.
// Between addresses a change is not atomic.
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
	// MaxBlocks is how many blocks entries can tell apart.
	MaxBlocks = EntryNumber + 1
	// MaxValue is the highest value.
	MaxValue = EntryNumber
)

const (
	entryLost = LengthLost << EntryLengthShift
	// maxLevels is the number of levels below the smallest root, of one entry, for IPv6.
	maxLevels = 128 / BlockBits
)

// Table is the writer of one table. Only Lookup may be called while another call is being made.
type Table struct {
	root, blocks       []uint32
	rootBits, addrBits int
	lost               int

	// queue is a ring of the numbers of all blocks that no entry leads to, from head: first those that are free,
	// then those that wait for Grace to pass, then those that wait for a Tick. since has the time, beside the
	// number, from which Grace counts. The block that was left longest ago is taken first.
	queue                      []uint32
	since                      []time.Duration
	head, free, waiting, fresh int
}

// New makes a table in the given memory, for addresses of addrBits bits: 32 is IPv4, 128 is IPv6. The root takes the
// first 0, 8, 16 or 24 bits of an address, by its size; blocks has room for any number of blocks of BlockSize entries,
// of which at most MaxBlocks are used. The memory has to be zero; if it may have been used before, call Reset. Another
// geometry is a mistake of the caller's, and panics.
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

// Insert gives a value to the addresses of p that no longer prefix covers. A prefix that is there already changes its
// value. It returns false if p has found no room: then the addresses of p, and maybe others that share the entry, are
// lost (see Lost). A value above MaxValue and a prefix of the other family panic.
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

// Remove gives the addresses that have their value from p the one of the longest prefix around p that remains, of
// coverBits bits, shorter than p's; or, with 0 and 0, of none. Nothing happens if p is not there.
func (t *Table) Remove(p netip.Prefix, coverBits int, coverValue uint32) {
	key, length := t.key(p.Addr()), prefixLen(p)
	if coverBits < 0 || coverBits >= max(length, 1) || coverValue > MaxValue {
		panic(fmt.Sprintf("lpm: remove %v, in a prefix of length %d with value %d", p, coverBits, coverValue))
	}
	var way [maxLevels]*uint32 // the entries that lead to where p is
	depth := 0
	entries, index, done := t.root, t.rootIndex(&key), t.rootBits
	for length > done {
		slot := &entries[index]
		if *slot&EntryBlock == 0 {
			return
		}
		way[depth] = slot
		depth++
		entries, index = t.block(*slot), int(key[done/8])
		done += BlockBits
	}
	rest := done - length
	from := index >> rest << rest
	t.overwrite(entries[from:from+1<<rest], length, length, pack(coverBits, coverValue))

	// Blocks inside p are there for longer prefixes, so only those on the way to it can have become superfluous.
	for depth > 0 {
		depth--
		if !t.fold(way[depth], t.rootBits+depth*BlockBits) {
			return
		}
	}
}

// Lookup reads the table as the programs do. It gives the value for an address and the length of the prefix that it is
// from. For addresses that are lost both are 0.
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

// Lost is how many entries should have led to a block when there was none. All addresses under such an entry have the
// answer 0, to ask the kernel, until Reset: the writer does not know what is missing there.
func (t *Table) Lost() int { return t.lost }

// overwrite stores e in all entries, down to the last level, that come from prefixes of the given lengths. No such
// range has LengthLost.
func (t *Table) overwrite(entries []uint32, from, to int, e uint32) {
	for i := range entries {
		// Only this goroutine stores entries, so it may load them as it likes.
		old := entries[i]
		if old&EntryBlock != 0 {
			t.overwrite(t.block(old), from, to, e)
		} else if n := lengthOf(old); n >= from && n <= to && old != e {
			atomic.StoreUint32(&entries[i], e)
		}
	}
}

// split makes an entry lead to a block that says the same. Without a block left, or below an entry for which there was
// none, it returns false.
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
	// Nobody reads the block yet, and the atomic store below comes after these.
	b := t.block(n)
	for i := range b {
		b[i] = e
	}
	atomic.StoreUint32(slot, EntryBlock|n)
	return true
}

// fold is the opposite of split: it puts the answer in place of a block that has only one, unless the answer is from a
// prefix that is too long for the level above, which has done bits. That goes for lost entries too.
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

// block gives the block that an entry leads to, or that has a number.
func (t *Table) block(e uint32) []uint32 {
	i := int(e&EntryNumber) * BlockSize
	return t.blocks[i : i+BlockSize : i+BlockSize]
}

func (t *Table) rootIndex(key *[16]byte) int {
	return int(binary.BigEndian.Uint32(key[:]) >> (32 - t.rootBits))
}

// key gives the bits of an address from the first byte on, for both families.
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
