// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"net/netip"

	"culvert/internal/route/lpm"
	"culvert/internal/route/routeplane"
)

// table is the mirror of one family, which another process writes (package lpm has the layout).
type table struct {
	root, blocks []uint32
	// rootLen is how many bytes of an address the root is indexed by; width is an address's, bits.
	rootLen, width int
	reader         *lpm.Table
}

func newTable(root, blocks []uint32, rootLen, width int) *table {
	return &table{root: root, blocks: blocks, rootLen: rootLen, width: width, reader: lpm.New(root, blocks, width)}
}

// content is what the image of a table has in it.
type content struct {
	// blocks are those that entries lead to; lost are entries that should lead to one.
	blocks, total, lost int
	// prefixes are those that are the longest for at least one address.
	prefixes int
	// numbers are the next hops referred to.
	numbers map[uint32]bool
}

// counter walks a table in the order of addresses.
type counter struct {
	of *table
	content
	// last is the network counted last, by its length: what follows within it is not counted again.
	last [129]netip.Addr
	key  [16]byte
	// entry is the one that was looked at before.
	entry uint32
	// visit gets the first address that is from each prefix; it may be nil.
	visit func(netip.Addr)
}

func (t *table) content() content { return t.walk(nil) }

// walk looks at all of the table, and calls visit with an address for each prefix that has one to itself.
func (t *table) walk(visit func(netip.Addr)) content {
	c := &counter{of: t, visit: visit}
	c.numbers = make(map[uint32]bool)
	c.total = len(t.blocks) / lpm.BlockSize
	step := t.rootLen * 8
	for i, e := range t.root {
		// Most of the root repeats what stood before, within one network.
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
			return // of a change under way
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
	case bits == 0 && number <= routeplane.HopNone: // stands for the lack of a route
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
