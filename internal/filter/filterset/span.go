// SPDX-License-Identifier: Apache-2.0

// Package filterset parses the sets of the packet filter, and encodes them as the program in the kernel looks them up.
package filterset

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"time"
)

// timeShift says that the unit of Time is 2^28 ns, about a quarter of a second (FILTER_TIME_SHIFT in bpf/filter/set.h). 32 bits then
// last for 36 years.
const timeShift = 28

// Time is a time on CLOCK_BOOTTIME, in units of 2^timeShift ns. That clock goes on in suspend, and nobody sets it.
type Time uint32

// Never is the time of members that do not expire.
const Never Time = math.MaxUint32

// TimeOf returns the Time at which CLOCK_BOOTTIME is d.
func TimeOf(d time.Duration) Time { return Time(d >> timeShift) }

// After returns the time after a timeout, Never for 0. It is not too early, and late by up to two units.
func (t Time) After(timeout time.Duration) Time {
	if timeout == 0 {
		return Never
	}
	// Add one, because the unit t has begun already.
	end := uint64(t) + uint64(timeout+(1<<timeShift-1))>>timeShift + 1
	return Time(min(end, uint64(Never)-1))
}

// Until returns how long it is at least from now to t. It returns 0 for Never, and if t has passed.
func (t Time) Until(now Time) time.Duration {
	if t == Never || t <= now {
		return 0
	}
	// The unit now may be about to end.
	return max(time.Duration(t-now-1)<<timeShift, 1)
}

// addr is an address as a number. One of IPv4 is in the low 32 bits of lo.
type addr struct{ hi, lo uint64 }

var (
	last4 = addr{0, math.MaxUint32}
	last6 = addr{math.MaxUint64, math.MaxUint64}
)

func (a addr) compare(b addr) int {
	if a.hi != b.hi {
		return cmp.Compare(a.hi, b.hi)
	}
	return cmp.Compare(a.lo, b.lo)
}

func (a addr) less(b addr) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

func (a addr) next() addr {
	lo, carry := bits.Add64(a.lo, 1, 0)
	return addr{a.hi + carry, lo}
}

func (a addr) before() addr {
	lo, borrow := bits.Sub64(a.lo, 1, 0)
	return addr{a.hi - borrow, lo}
}

func addrOf(ip netip.Addr) addr {
	if ip.Is4() {
		b := ip.As4()
		return addr{0, uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := ip.As16()
	return addr{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (a addr) ip(v4 bool) netip.Addr {
	var b [16]byte
	if v4 {
		binary.BigEndian.PutUint32(b[:], uint32(a.lo))
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	binary.BigEndian.PutUint64(b[:8], a.hi)
	binary.BigEndian.PutUint64(b[8:], a.lo)
	return netip.AddrFrom16(b)
}

// end returns the last of the 2^n addresses from a on. The last n bits of a are 0.
func (a addr) end(n int) addr {
	if n >= 64 {
		return addr{a.hi | (1<<(n-64) - 1), math.MaxUint64}
	}
	return addr{a.hi, a.lo | (1<<n - 1)}
}

// span is a range of addresses with the same time. It includes both ends.
type span struct {
	from, to addr
	until    Time
}

// normal returns the normal form of spans: sorted, without overlaps, and as few as possible. Where spans overlap, the latest time
// holds. It sorts the spans in place.
func normal(spans []span) []span {
	byFrom := func(a, b span) int { return a.from.compare(b.from) }
	if !slices.IsSortedFunc(spans, byFrom) {
		slices.SortFunc(spans, byFrom)
	}
	out := make([]span, 0, len(spans))
	var open latest // those that begin at at or before it. Ended ones are removed when they are on top.
	var at addr
	for n := 0; n < len(spans) || len(open) > 0; at = at.next() {
		if len(open) == 0 {
			at = spans[n].from
		}
		for ; n < len(spans) && !at.less(spans[n].from); n++ {
			open.push(spans[n])
		}
		for len(open) > 0 && open[0].to.less(at) {
			open.pop()
		}
		if len(open) == 0 {
			at = at.before()
			continue
		}
		top := open[0]
		to := top.to
		for ; n < len(spans) && !to.less(spans[n].from); n++ {
			if spans[n].until > top.until {
				to = spans[n].from.before()
				break
			}
			if to.less(spans[n].to) {
				open.push(spans[n])
			}
		}
		out = join(out, span{at, to, top.until})
		if to == last6 {
			break
		}
		at = to
	}
	return out
}

// join appends a span that follows all others. It joins it to the last one if the two touch and have the same time.
func join(spans []span, s span) []span {
	if n := len(spans) - 1; n >= 0 && spans[n].until == s.until && spans[n].to.next() == s.from {
		spans[n].to = s.to
		return spans
	}
	return append(spans, s)
}

// without returns spans without the addresses of others. Both have to be normal.
func without(spans, others []span) []span {
	out := make([]span, 0, len(spans)+len(others))
	n := 0
	for _, s := range spans {
		for n < len(others) && others[n].to.less(s.from) {
			n++
		}
		left := true
		for m := n; m < len(others) && !s.to.less(others[m].from); m++ {
			if s.from.less(others[m].from) {
				out = append(out, span{s.from, others[m].from.before(), s.until})
			}
			if !others[m].to.less(s.to) {
				left = false
				break
			}
			s.from = others[m].to.next()
		}
		if left {
			out = append(out, s)
		}
	}
	return out
}

// latest is a heap of spans with the latest time on top.
type latest []span

func (h *latest) push(s span) {
	a := append(*h, s)
	for n := len(a) - 1; n > 0; {
		up := (n - 1) / 2
		if a[up].until >= a[n].until {
			break
		}
		a[up], a[n] = a[n], a[up]
		n = up
	}
	*h = a
}

func (h *latest) pop() {
	a := *h
	last := len(a) - 1
	a[0] = a[last]
	a = a[:last]
	for n := 0; ; {
		down := 2*n + 1
		if down >= last {
			break
		}
		if down+1 < last && a[down+1].until > a[down].until {
			down++
		}
		if a[n].until >= a[down].until {
			break
		}
		a[n], a[down] = a[down], a[n]
		n = down
	}
	*h = a
}
