// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"net/netip"

	"culvert/internal/route/lpm"
	"culvert/internal/route/routeplane"
)

// table is the mirror of one family in the layout of package lpm. Another process may be writing it.
type table struct {
	root, blocks []uint32
	// rootLen is how many bytes of an address index the root, and width is the length of an address in bits.
	rootLen, width int
	reader         *lpm.Table
}

func newTable(root, blocks []uint32, rootLen, width int) *table {
	return &table{root: root, blocks: blocks, rootLen: rootLen, width: width, reader: lpm.New(root, blocks, width)}
}

// content describes what is in a table.
type content struct {
	// blocks counts the blocks that entries lead to, of total. lost counts the entries that needed a block when none
	// was free.
	blocks, total, lost int
	// prefixes counts the prefixes that are the longest for at least one address.
	prefixes int
	// numbers are the numbers of the next hops that entries refer to.
	numbers map[uint32]bool
}

// counter walks a table in the order of addresses.
type counter struct {
	of *table
	content
	// last is the network counted last, by prefix length. Further entries in it are not counted again.
	last [129]netip.Addr
	key  [16]byte
	// entry is the previous entry.
	entry uint32
	// visit is called with the first address whose answer comes from each prefix. It may be nil.
	visit func(netip.Addr)
}

func (t *table) content() content { return t.walk(nil) }

// walk looks at all entries. It calls visit, unless it is nil, with one address for each prefix that is the longest for
// some address.
func (t *table) walk(visit func(netip.Addr)) content {
	c := &counter{of: t, visit: visit}
	c.numbers = make(map[uint32]bool)
	c.total = len(t.blocks) / lpm.BlockSize
	step := t.rootLen * 8
	for i, e := range t.root {
		// Most entries of the root repeat the previous one, in the same network.
		if e == c.entry && e&lpm.EntryBlock == 0 {
			if bits := lengthOf(e); bits < step && i&(1<<(step-bits)-1) != 0 {
				continue
			}
		}
		for n := range t.rootLen {
			c.key[n] = byte(i >> (8 * (t.rootLen - 1 - n)))
		}
		c.look(e, t.rootLen)
	}
	return c.content
}

func (c *counter) look(e uint32, depth int) {
	clear(c.key[depth:])
	c.entry = e
	if e&lpm.EntryBlock != 0 {
		from := int(e&lpm.EntryNumber) * lpm.BlockSize
		if depth == c.of.width/8 || from+lpm.BlockSize > len(c.of.blocks) {
			return // a change is under way
		}
		c.blocks++
		for i, below := range c.of.blocks[from : from+lpm.BlockSize] {
			c.key[depth] = byte(i)
			c.look(below, depth+1)
		}
		return
	}
	number, bits := e&lpm.EntryNumber, lengthOf(e)
	switch {
	case bits == lpm.LengthLost:
		c.lost++
		return
	case bits > c.of.width:
		return
	case bits == 0 && number <= routeplane.HopNone: // no route
		return
	}
	c.numbers[number] = true
	addr, _ := netip.AddrFromSlice(c.key[:c.of.width/8])
	network, err := addr.Prefix(bits)
	if err != nil || c.last[bits] == network.Addr() {
		return
	}
	c.last[bits] = network.Addr()
	c.prefixes++
	if c.visit != nil {
		c.visit(addr)
	}
}

func lengthOf(e uint32) int { return int(e >> lpm.EntryLengthShift & lpm.EntryLengthMask) }
