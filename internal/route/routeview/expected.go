// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"net/netip"

	"github.com/gaissmai/bart"
	"golang.org/x/sys/unix"
)

// expected holds the kernel's tables, to be looked up in the order of the default policy rules: local, main, default.
// Asking the kernel for each of a million prefixes would take too long. It is asked only where the mirror differs from
// expected, or where expected is not sure.
type expected struct {
	prefixes []netip.Prefix
	local    bart.Table[uint32]
	main     bart.Table[uint32]
	def      bart.Table[uint32]
	// ways are the distinct ways, which the tables refer to by index. numbers is the reverse.
	ways    []expectedWay
	numbers map[expectedWay]uint32
}

// expectedWay is the best route so far of a prefix in a table.
type expectedWay struct {
	way
	metric uint32
	unsure bool
}

func newExpected(k *kernel, is6 bool, progress func(int)) (*expected, error) {
	e := &expected{numbers: make(map[expectedWay]uint32)}
	err := k.dump(is6, func(r kernelRoute) {
		e.add(r)
		progress(len(e.prefixes))
	})
	return e, err
}

func (e *expected) table(number uint32) *bart.Table[uint32] {
	switch number {
	case unix.RT_TABLE_LOCAL:
		return &e.local
	case unix.RT_TABLE_MAIN:
		return &e.main
	case unix.RT_TABLE_DEFAULT:
		return &e.def
	}
	return nil
}

func (e *expected) add(r kernelRoute) {
	t := e.table(r.table)
	if t == nil {
		return
	}
	one := expectedWay{way: r.way, metric: r.metric}
	one.unsure = r.tos != 0 || r.bySource || r.down || r.object || r.kind == otherKind
	p := r.prefix.Masked()
	if number, ok := t.Get(p); ok {
		before := e.ways[number]
		switch {
		case before.metric == one.metric || before.unsure || one.unsure: // several, or it depends
			one.unsure = true
		case before.metric < one.metric:
			return
		}
	} else {
		e.prefixes = append(e.prefixes, p)
	}
	t.Insert(p, e.intern(one))
}

func (e *expected) intern(w expectedWay) uint32 {
	number, ok := e.numbers[w]
	if !ok {
		number = uint32(len(e.ways))
		e.ways = append(e.ways, w)
		e.numbers[w] = number
	}
	return number
}

// find returns the way to an address. sure is false if the kernel has to be asked.
func (e *expected) find(addr netip.Addr) (w way, sure bool) {
	for _, t := range []*bart.Table[uint32]{&e.local, &e.main, &e.def} {
		if number, ok := t.Lookup(addr); ok {
			return e.ways[number].way, !e.ways[number].unsure
		}
	}
	return way{kind: none}, true
}

// around returns the first and the last address of a prefix, and the addresses before and after it, which may be invalid.
func around(p netip.Prefix) [4]netip.Addr {
	first := p.Addr()
	last := lastOf(p)
	return [4]netip.Addr{first, last, first.Prev(), last.Next()}
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for n := range b {
		switch rest := p.Bits() - 8*n; {
		case rest <= 0:
			b[n] = 0xff
		case rest < 8:
			b[n] |= 0xff >> rest
		}
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}
