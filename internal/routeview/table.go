// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"net/netip"

	"culvert/internal/datapath"
)

// An entry of the mirror (bpf/route_lpm.h): the number of a block below, or the length of the prefix that it
// is from and the number of a next hop.
const (
	entryBlock  = 1 << 31
	entryNumber = 1<<23 - 1
	lengthShift = 23
	lengthMask  = 0xff
	// lengthLost marks an entry that should lead to a block, had there been one.
	lengthLost = 255
	blockSize  = 256
)

// table is the mirror of one family, which another process writes.
type table struct {
	root, blocks []uint32
	// rootLen is how many bytes of an address the root is indexed by; width is an address's, bits.
	rootLen, width int
}

// lookup reads as the programs do. A way that leads nowhere, which a change under way can be mistaken for, counts
// as lost: either asks the kernel.
func (t *table) lookup(addr netip.Addr) (number uint32, bits int, lost bool) {
	key := addr.AsSlice()
	index := 0
	for _, b := range key[:t.rootLen] {
		index = index<<8 | int(b)
	}
	e := t.root[index]
	for _, b := range key[t.rootLen:] {
		if e&entryBlock == 0 {
			break
		}
		at := int(e&entryNumber)*blockSize + int(b)
		if at >= len(t.blocks) {
			return datapath.RouteHopAsk, 0, true
		}
		e = t.blocks[at]
	}
	bits = int(e >> lengthShift & lengthMask)
	if e&entryBlock != 0 || bits == lengthLost {
		return datapath.RouteHopAsk, 0, true
	}
	return e & entryNumber, bits, false
}

// usage is what the image of a table has in it.
type usage struct {
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
	usage
	// last is the network counted last, by its length: what follows within it is not counted again.
	last [129]netip.Addr
	key  [16]byte
	// entry is the one that was looked at before.
	entry uint32
}

func (t *table) usage() usage {
	c := &counter{of: t}
	c.numbers = make(map[uint32]bool)
	c.total = len(t.blocks) / blockSize
	step := t.rootLen * 8
	for i, e := range t.root {
		// Most of the root repeats what stood before, within one network.
		if e == c.entry && e&entryBlock == 0 {
			if bits := int(e >> lengthShift & lengthMask); bits < step && i&(1<<(step-bits)-1) != 0 {
				continue
			}
		}
		for n := range t.rootLen {
			c.key[n] = byte(i >> (8 * (t.rootLen - 1 - n)))
		}
		c.look(e, t.rootLen)
	}
	return c.usage
}

func (c *counter) look(e uint32, depth int) {
	clear(c.key[depth:])
	c.entry = e
	if e&entryBlock != 0 {
		from := int(e&entryNumber) * blockSize
		if depth == c.of.width/8 || from+blockSize > len(c.of.blocks) {
			return // of a change under way
		}
		c.blocks++
		for i, below := range c.of.blocks[from : from+blockSize] {
			c.key[depth] = byte(i)
			c.look(below, depth+1)
		}
		return
	}
	number, bits := e&entryNumber, int(e>>lengthShift&lengthMask)
	switch {
	case bits == lengthLost:
		c.lost++
		return
	case bits > c.of.width:
		return
	case bits == 0 && number <= datapath.RouteHopNone: // stands for the lack of a route
		return
	}
	c.numbers[number] = true
	if network := c.network(bits); c.last[bits] != network {
		c.last[bits] = network
		c.prefixes++
	}
}

// network is the one of a length that the walk is in.
func (c *counter) network(bits int) netip.Addr {
	addr, _ := netip.AddrFromSlice(c.key[:c.of.width/8])
	p, _ := addr.Prefix(bits)
	return p.Addr()
}
