// SPDX-License-Identifier: Apache-2.0

// Package filterset reads the sets of the packet filter, and lays them out as the program in the kernel
// looks them up.
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

// Times are counted in units of 2^timeShift ns of CLOCK_BOOTTIME, which goes on in suspend and which no one
// sets: a quarter of a second, 36 years in 32 bits. FILTER_TIME_SHIFT in bpf/filter/set.h.
const timeShift = 28

// Time is when a member ceases to be one, or the time now, from the start of the system.
type Time uint32

// Never is the end of those that stay.
const Never Time = math.MaxUint32

// TimeOf is the time when CLOCK_BOOTTIME is d.
func TimeOf(d time.Duration) Time { return Time(d >> timeShift) }

// After returns when a timeout ends; 0 never does. It is up to a quarter of a second late, and not early.
func (t Time) After(timeout time.Duration) Time {
	if timeout == 0 {
		return Never
	}
	// One more, since t has begun already.
	end := uint64(t) + uint64(timeout+(1<<timeShift-1))>>timeShift + 1
	return Time(min(end, uint64(Never)-1))
}

// Until returns how long it is from now to t at least: 0 for Never, and when it is over.
func (t Time) Until(now Time) time.Duration {
	if t == Never || t <= now {
		return 0
	}
	// now may be about to end.
	return max(time.Duration(t-now-1)<<timeShift, 1)
}

// addr is an address of either family as a number: those of IPv4 have 32 bits of lo.
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

// end returns the last address of the 2^n that begin with a.
func (a addr) end(n int) addr {
	if n >= 64 {
		return addr{a.hi | (1<<(n-64) - 1), math.MaxUint64}
	}
	return addr{a.hi, a.lo | (1<<n - 1)}
}

// span is a run of addresses, both ends included.
type span struct {
	from, to addr
	until    Time
}

// normal puts spans into order, apart and as few as there can be. Where some overlap the latest end wins.
// It works in place.
func normal(spans []span) []span {
	byFrom := func(a, b span) int { return a.from.compare(b.from) }
	if !slices.IsSortedFunc(spans, byFrom) {
		slices.SortFunc(spans, byFrom)
	}
	out := make([]span, 0, len(spans))
	var open latest // that begin before at, and those that end before it and were not on top since
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

// join appends a span that is behind all others.
func join(spans []span, s span) []span {
	if n := len(spans) - 1; n >= 0 && spans[n].until == s.until && spans[n].to.next() == s.from {
		spans[n].to = s.to
		return spans
	}
	return append(spans, s)
}

// without returns what is left of spans without the addresses of others; both are normal.
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

// latest is a heap of spans with the latest end on top.
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
