// SPDX-License-Identifier: Apache-2.0

package filterset

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// The image of a set of prefixes consists of lines of 128 bytes: two cache lines, which processors fetch as a pair. Line 0 is the
// header (struct filter_set_header in bpf/filter/set.h). Numbers are in native byte order.
//
// The range from the first to the last member is divided into buckets of 2^n addresses. A table has an entry for each bucket, which
// refers to the root of a tree. So most look-ups read two lines besides the header. Adjacent buckets with few boundaries share a tree
// of one line.
//
// A tree holds boundaries: addresses from which on addresses are members, or no longer are. A line has 32 keys for IPv4 and 8 for
// IPv6. A key is the boundary minus one, and free slots have all ones: no address is greater. Slot 0 of the first leaf stands for the
// addresses before the first boundary. An inner line has the first keys of its children, and in slot 0 the line of the first child.
// So slot 0 is never compared: the address that is looked up is always greater.
//
// If no member has a timeout, the addresses after a boundary in an odd slot are members, or after one in an even slot if the entry of
// the table says so. If some members have a timeout, each slot has a word with the time when the addresses after it expire instead.
const (
	// LineSize is the size of a line in bytes.
	LineSize = 128

	imageFormat = 1
	lineWords   = LineSize / 4
	maxHeight   = 11 // of a tree, in lines
	maxLines    = 1 << 27
)

// family is the layout of an address family.
type family struct {
	v4     bool
	end    addr // the last address
	slots  int  // keys in a line
	bucket int  // boundaries in a bucket on average: at most this many, and more than half as many
	header int  // offset of its struct filter_set_family in the header, bytes
}

var (
	family4 = family{v4: true, end: last4, slots: 32, bucket: 8, header: 16}
	family6 = family{v4: false, end: last6, slots: 8, bucket: 2, header: 72}
)

var ne = binary.NativeEndian

// header is struct filter_set_family.
type header struct {
	prefix, first             uint64
	last                      addr
	buckets, skip, shift      uint32
	tableAt, treesAt, timesAt uint32
}

func (h *header) write(b []byte) {
	for n, v := range []uint64{h.prefix, h.first, h.last.hi, h.last.lo} {
		ne.PutUint64(b[8*n:], v)
	}
	for n, v := range []uint32{h.buckets, h.skip, h.shift, h.tableAt, h.treesAt, h.timesAt} {
		ne.PutUint32(b[32+4*n:], v)
	}
}

func (h *header) read(b []byte) {
	for n, v := range []*uint64{&h.prefix, &h.first, &h.last.hi, &h.last.lo} {
		*v = ne.Uint64(b[8*n:])
	}
	for n, v := range []*uint32{&h.buckets, &h.skip, &h.shift, &h.tableAt, &h.treesAt, &h.timesAt} {
		*v = ne.Uint32(b[32+4*n:])
	}
}

// boundary is an address from which on addresses are members until a time, or no members if until is 0.
type boundary struct {
	at    addr
	until Time
}

// group is a sequence of buckets that share a tree.
type group struct {
	buckets  int  // how many
	from, to int  // the range of its boundaries in part.bounds
	before   Time // of the addresses before its first boundary, as boundary.until
	height   int
	line     int // of the root
}

// part is the part of an image that has one family.
type part struct {
	family
	header
	bounds []boundary
	groups []group
	trees  int  // lines of all trees
	times  bool // some members have a timeout
}

// Image returns the set as the program looks it up. The image depends on nothing but the members. It is an error if the set is too
// large.
func (p *Prefixes) Image() ([]byte, error) {
	lines := 1
	parts := []*part{newPart(family4, p.v4), newPart(family6, p.v6)}
	for _, f := range parts {
		var err error
		if lines, err = f.place(lines); err != nil {
			return nil, err
		}
	}
	image := make([]byte, lines*LineSize)
	ne.PutUint32(image, imageFormat)
	ne.PutUint32(image[4:], uint32(lines))
	for _, f := range parts {
		f.header.write(image[f.family.header:])
		f.write(image)
	}
	return image, nil
}

func newPart(f family, spans []span) *part {
	p := &part{family: f}
	if len(spans) == 0 {
		return p
	}
	p.bounds = make([]boundary, 0, 2*len(spans))
	for n, s := range spans {
		p.times = p.times || s.until != Never
		p.bounds = append(p.bounds, boundary{s.from, s.until})
		if s.to != f.end && (n+1 == len(spans) || spans[n+1].from != s.to.next()) {
			p.bounds = append(p.bounds, boundary{s.to.next(), 0})
		}
	}
	p.last = spans[len(spans)-1].to
	p.cut(spans[0].from)
	if end := len(p.bounds) - 1; p.last.less(p.bounds[end].at) {
		if n, ok := p.find(p.bounds[end].at); !ok || n >= int(p.buckets) {
			p.bounds = p.bounds[:end] // beyond the last bucket, where no address is a member
		}
	}
	p.join()
	return p
}

// cut divides the range from first to the last member into buckets.
func (p *part) cut(first addr) {
	last := p.last
	if !p.v4 {
		p.skip = uint32(bits.LeadingZeros64(first.hi ^ last.hi))
		if p.skip == 64 { // the window begins with a bit of hi at least
			p.skip = 63
		}
		p.prefix = first.hi >> 1 >> (63 - p.skip)
	}
	from, to := p.window(first), p.window(last)
	want := uint64(len(p.bounds) / p.bucket)
	for p.shift = 63; p.shift > 0 && to>>p.shift-from>>p.shift+1 < want; p.shift-- {
	}
	p.first = from >> p.shift
	p.buckets = uint32(to>>p.shift - p.first + 1)
}

// window returns the bits of an address that determine its bucket: an IPv4 address as a whole, or the 64 bits of an IPv6 address that
// follow the prefix of all members.
func (p *part) window(a addr) uint64 {
	if p.v4 {
		return a.lo
	}
	return a.hi<<p.skip | a.lo>>1>>(63-p.skip)
}

// find returns the bucket of an address. It is false if the address does not have the prefix of all members.
func (p *part) find(a addr) (int, bool) {
	return int(p.window(a)>>p.shift - p.first), p.v4 || a.hi>>1>>(63-p.skip) == p.prefix
}

// join divides the buckets into groups.
func (p *part) join() {
	var g group
	n, before := 0, Time(0)
	if p.bounds[0].at == (addr{}) { // no address is before it, so there is no key for it
		n, before = 1, p.bounds[0].until
	}
	for b := range int(p.buckets) {
		from := n
		for ; n < len(p.bounds); n++ {
			if in, _ := p.find(p.bounds[n].at); in != b {
				break
			}
		}
		if g.buckets > 0 && n-g.from >= p.slots {
			p.groups = append(p.groups, g)
			g = group{}
		}
		if g.buckets == 0 {
			g.from, g.before = from, before
		}
		g.buckets++
		g.to = n
		if n > from {
			before = p.bounds[n-1].until
		}
	}
	p.groups = append(p.groups, g)
}

// place assigns lines from line on to the table, the trees and the times. It returns the line after them.
func (p *part) place(line int) (int, error) {
	if len(p.groups) == 0 {
		return line, nil
	}
	p.tableAt = uint32(line)
	line += lines(int(p.buckets), lineWords)
	p.treesAt = uint32(line)
	for n := range p.groups {
		g := &p.groups[n]
		g.line = line
		for level := lines(1+g.to-g.from, p.slots); ; level = lines(level, p.slots) {
			line += level
			g.height++
			if level == 1 {
				break
			}
		}
		if g.height > maxHeight || line >= maxLines {
			return 0, fmt.Errorf("the set is too large: %d addresses and prefixes are too close together", len(p.bounds)/2)
		}
	}
	p.trees = line - int(p.treesAt)
	if p.times {
		p.timesAt = uint32(line)
		line += lines(p.trees*p.slots, lineWords)
	}
	return line, nil
}

// lines returns how many lines are needed for n items, of which inLine fit into one.
func lines(n, inLine int) int { return (n + inLine - 1) / inLine }

// write writes the table, the trees and the times.
func (p *part) write(image []byte) {
	entry := int(p.tableAt) * LineSize
	for n := range p.groups {
		g := &p.groups[n]
		tree := uint32(g.line)<<5 | uint32(g.height)<<1
		if g.before != 0 {
			tree |= 1
		}
		for range g.buckets {
			ne.PutUint32(image[entry:], tree)
			entry += 4
		}
		p.writeTree(image, g)
	}
}

// writeTree writes the tree of a group, and its times.
func (p *part) writeTree(image []byte, g *group) {
	bounds := p.bounds[g.from:g.to]
	// The number of lines of each level, the root first.
	var levels [maxHeight]int
	n := 1 + len(bounds)
	for level := g.height - 1; level >= 0; level-- {
		n = lines(n, p.slots)
		levels[level] = n
	}
	line := g.line
	for level := range g.height {
		// The number of slots in leaves below one slot of this level.
		below := 1
		for range g.height - 1 - level {
			below *= p.slots
		}
		for n := range levels[level] * p.slots {
			p.writeKey(image, line, n, bounds, n*below)
		}
		if below > 1 {
			for n := range levels[level] {
				ne.PutUint32(image[(line+n)*LineSize:], uint32(line+levels[level]+n*p.slots))
			}
		} else if p.times {
			p.writeTimes(image, line, bounds, g.before)
		}
		line += levels[level]
	}
}

// writeKey writes a key into slot n, counted from the first slot of a line on. It is the key of slot leaf, counted over all leaves.
func (p *part) writeKey(image []byte, line, n int, bounds []boundary, leaf int) {
	key := addr{math.MaxUint64, math.MaxUint64}
	if leaf == 0 {
		key = addr{}
	} else if leaf <= len(bounds) {
		key = bounds[leaf-1].at.before()
	}
	at := image[(line+n/p.slots)*LineSize:]
	n %= p.slots
	if p.v4 {
		ne.PutUint32(at[4*n:], uint32(key.lo))
		return
	}
	ne.PutUint64(at[8*n:], key.hi)
	ne.PutUint64(at[8*n+LineSize/2:], key.lo)
}

// writeTimes writes the times of all leaves of a tree, of which line is the first. Before is the time of slot 0.
func (p *part) writeTimes(image []byte, line int, bounds []boundary, before Time) {
	at := int(p.timesAt)*LineSize + (line-int(p.treesAt))*p.slots*4
	ne.PutUint32(image[at:], uint32(before))
	for n, b := range bounds {
		ne.PutUint32(image[at+4*(n+1):], uint32(b.until))
	}
}
