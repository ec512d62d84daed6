// SPDX-License-Identifier: Apache-2.0

package filterset

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// naive is a set as a list of ranges.
type naive []naiveEntry

type naiveEntry struct {
	from, to netip.Addr
	until    Time
}

// until returns the time when an address expires, 0 if it is not a member.
func (n naive) until(a netip.Addr) (until Time) {
	for _, e := range n {
		if e.from.BitLen() == a.BitLen() && !a.Less(e.from) && !e.to.Less(a) {
			until = max(until, e.until)
		}
	}
	return until
}

// lookUp looks an address up as bpf/filter/set.h does. It also returns how many lines it has read besides the header.
func lookUp(t testing.TB, image []byte, ip netip.Addr, now Time) (has bool, read int) {
	t.Helper()
	line := func(n uint32) []byte {
		if uint64(n) >= uint64(len(image)/LineSize) {
			t.Fatalf("%s leads to line %d of %d", ip, n, len(image)/LineSize)
		}
		read++
		return image[int(n)*LineSize:][:LineSize]
	}
	f, a := family4, addrOf(ip)
	if ip.Is6() {
		f = family6
	}
	p := part{family: f}
	p.read(image[f.header:])
	bucket, ok := p.find(a)
	if !ok || uint64(bucket) >= uint64(p.buckets) {
		return false, 0
	}
	tree := ne.Uint32(line(p.tableAt + uint32(bucket/32))[bucket%32*4:])
	n := tree >> 5
	var slot int
	for i := uint32(1); ; i++ {
		b := line(n)
		slot = 0
		for s := 1; s < f.slots; s++ {
			var key addr
			if f.v4 {
				key = addr{0, uint64(ne.Uint32(b[4*s:]))}
			} else {
				key = addr{ne.Uint64(b[8*s:]), ne.Uint64(b[64+8*s:])}
			}
			if key.less(a) {
				if slot != s-1 {
					t.Fatalf("keys of line %d are out of order", n)
				}
				slot = s
			}
		}
		if i >= tree>>1&15 {
			break
		}
		n = ne.Uint32(b) + uint32(slot)
	}
	if p.timesAt == 0 {
		return (uint32(slot)^tree)&1 != 0, read
	}
	slot += int(n-p.treesAt) * f.slots
	return now < Time(ne.Uint32(line(p.timesAt + uint32(slot/32))[slot%32*4:])), read
}

// source makes random addresses and entries.
type source struct {
	*rand.Rand
	layout layout
	times  bool // some entries have a timeout
}

// layout says how addresses are distributed.
type layout int

const (
	anywhere        layout = iota
	edges                  // near the first or the last address
	oneNetwork             // with the same first bits
	mostlyOneSubnet        // in one network, and a few elsewhere
)

// addr returns a random address.
func (s *source) addr(v4 bool) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], s.Uint64())
	binary.BigEndian.PutUint64(b[8:], s.Uint64())
	switch s.layout {
	case edges:
		fill := byte(0)
		if s.IntN(2) == 0 {
			fill = 255
		}
		for n := range 14 {
			b[n] = fill
		}
		copy(b[:2], b[4:6])
		if v4 {
			b[2] = b[14]
			b[3] = b[15]
		}
	case oneNetwork: // the random bits lie across the middle of the 128 bits
		copy(b[:7], []byte{0x20, 1, 0xd, 0xb8, 1, 2, 3})
	case mostlyOneSubnet:
		if s.IntN(100) != 0 {
			copy(b[:13], []byte{0x20, 1, 0xd, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 9})
		}
	}
	if v4 {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b)
}

// entry returns a random address, range or prefix.
func (s *source) entry(v4 bool) naiveEntry {
	until := Never
	if s.times && s.IntN(4) != 0 {
		until = Time(1 + s.IntN(8))
	}
	a := s.addr(v4)
	switch s.IntN(3) {
	case 0:
		return naiveEntry{a, a, until}
	case 1:
		b := s.addr(v4)
		// Long ranges would contain all other entries.
		if x, y := addrOf(a), addrOf(b); x.hi == y.hi && max(x.lo, y.lo)-min(x.lo, y.lo) < 300 {
			if b.Less(a) {
				a, b = b, a
			}
			return naiveEntry{a, b, until}
		}
		return naiveEntry{a, a, until}
	}
	length := a.BitLen() - s.IntN(a.BitLen()*3/4)
	p, _ := a.Prefix(length)
	return naiveEntry{p.Addr(), last(p), until}
}

func last(p netip.Prefix) netip.Addr {
	return addrOf(p.Addr()).end(p.Addr().BitLen() - p.Bits()).ip(p.Addr().Is4())
}

// build returns the set with these entries.
func build(all naive) *Prefixes {
	p := new(Prefixes)
	for _, e := range all {
		p.put(e.from.Is4(), span{addrOf(e.from), addrOf(e.to), e.until})
	}
	p.parsed()
	return p
}

// probes returns addresses at and around the edges of entries, the first and the last address, and random ones.
func (s *source) probes(all naive) []netip.Addr {
	probes := []netip.Addr{
		netip.IPv4Unspecified(), netip.AddrFrom4([4]byte{255, 255, 255, 255}),
		netip.IPv6Unspecified(), last6.ip(false),
	}
	for range 30 {
		probes = append(probes, s.addr(true), s.addr(false))
	}
	for n := range min(len(all), 40) {
		e := all[n]
		if len(all) > 40 {
			e = all[s.IntN(len(all))]
		}
		for _, a := range []netip.Addr{e.from, e.to, e.from.Prev(), e.to.Next()} {
			if a.IsValid() {
				probes = append(probes, a)
			}
		}
	}
	return probes
}
