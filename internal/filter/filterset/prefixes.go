// SPDX-License-Identifier: Apache-2.0

package filterset

import (
	"iter"
	"math/bits"
	"net/netip"
	"slices"
	"time"
)

// Prefixes is a set of prefixes of both families. The zero value is empty.
type Prefixes struct {
	v4, v6 []span
	given  int // see Given
}

// put adds a span. The set has to be made normal afterwards.
func (p *Prefixes) put(v4 bool, s span) {
	if v4 {
		p.v4 = append(p.v4, s)
	} else {
		p.v6 = append(p.v6, s)
	}
}

// parsed makes the set of the spans of entries, in any order, that were put into it.
func (p *Prefixes) parsed() {
	p.given = len(p.v4) + len(p.v6)
	p.v4, p.v6 = normal(p.v4), normal(p.v6)
}

// Given returns how many entries the text has that the set was read from, and 0 for another set. Len may be less, because prefixes
// that touch or overlap are one, or more, because a range may need several prefixes.
func (p *Prefixes) Given() int { return p.given }

// Add adds the members of another set. An address of both keeps the later time.
func (p *Prefixes) Add(q *Prefixes) {
	p.v4 = normal(slices.Concat(p.v4, q.v4))
	p.v6 = normal(slices.Concat(p.v6, q.v6))
}

// Remove removes the addresses of another set, also from within larger prefixes.
func (p *Prefixes) Remove(q *Prefixes) {
	p.v4, p.v6 = without(p.v4, q.v4), without(p.v6, q.v6)
}

// Missing returns a prefix of another set that p does not have. It is false if there is none.
func (p *Prefixes) Missing(q *Prefixes) (netip.Prefix, bool) {
	rest := Prefixes{v4: without(q.v4, p.v4), v6: without(q.v6, p.v6)}
	for prefix := range rest.All() {
		return prefix, true
	}
	return netip.Prefix{}, false
}

// Expire removes the members that have expired.
func (p *Prefixes) Expire(now Time) {
	expired := func(s span) bool { return s.until <= now }
	p.v4, p.v6 = slices.DeleteFunc(p.v4, expired), slices.DeleteFunc(p.v6, expired)
}

// Has tells whether an address is a member. An IPv4-mapped IPv6 address is not the IPv4 address.
func (p *Prefixes) Has(ip netip.Addr, now Time) bool {
	spans := p.v6
	if ip.Is4() {
		spans = p.v4
	}
	n, ok := slices.BinarySearchFunc(spans, addrOf(ip), func(s span, a addr) int {
		switch {
		case s.to.less(a):
			return -1
		case a.less(s.from):
			return 1
		}
		return 0
	})
	return ok && now < spans[n].until
}

// All returns the shortest list of prefixes with the same members, with the times when they expire. They are sorted, those of IPv4
// first.
func (p *Prefixes) All() iter.Seq2[netip.Prefix, Time] {
	return func(yield func(netip.Prefix, Time) bool) {
		for _, s := range p.v4 {
			if !s.prefixes(32, yield) {
				return
			}
		}
		for _, s := range p.v6 {
			if !s.prefixes(128, yield) {
				return
			}
		}
	}
}

// Len returns how many prefixes All has.
func (p *Prefixes) Len() (n int) {
	for range p.All() {
		n++
	}
	return n
}

// Next returns after how long the next member expires, 0 if none does.
func (p *Prefixes) Next(now Time) time.Duration {
	next := Never
	for _, spans := range [][]span{p.v4, p.v6} {
		for _, s := range spans {
			if s.until > now {
				next = min(next, s.until)
			}
		}
	}
	return next.Until(now)
}

// prefixes yields the prefixes of a span, of addresses with width bits. It returns false if yield does.
func (s span) prefixes(width int, yield func(netip.Prefix, Time) bool) bool {
	for at := s.from; ; {
		n := at.zeros(width)
		for n > 0 && s.to.less(at.end(n)) {
			n--
		}
		if !yield(netip.PrefixFrom(at.ip(width == 32), width-n), s.until) {
			return false
		}
		end := at.end(n)
		if !end.less(s.to) {
			return true
		}
		at = end.next()
	}
}

// zeros returns the number of trailing zero bits of an address, at most width.
func (a addr) zeros(width int) int {
	if a.lo != 0 {
		return bits.TrailingZeros64(a.lo)
	}
	return min(64+bits.TrailingZeros64(a.hi), width)
}
