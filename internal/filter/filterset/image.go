// SPDX-License-Identifier: Apache-2.0

package filterset

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// A set of prefixes is lines of 128 bytes: two cache lines that processors fetch as a pair. Line 0 is the
// header (struct filter_set_header in bpf/filter/set.h).
//
// The addresses between the first and the last member are cut into buckets of 2^n addresses. A table with an
// entry for each bucket leads to a tree, so that most look-ups need two lines beside the header. Neighbouring
// buckets with few boundaries share a tree of one line.
//
// A tree has the boundaries: addresses from which on addresses are members, or are no more. Leaves have 32
// keys for IPv4 and 8 for IPv6; a key is the boundary less one, so that all ones, behind any address, fills
// lines up. Slot 0 of the first leaf is not a boundary, but stands for what is before the first of them; the
// lines above have the first keys of their children, and in slot 0 the line of the first child. So slot 0 is
// never compared: what is looked up is always behind it.
//
// Members are the addresses whose last boundary is in an odd slot, or in an even one if the entry of the
// table says so. If some members have a time, then there is a word for each slot with its end instead.
const (
	// LineSize is the size of a line, bytes.
	LineSize = 128

	imageFormat = 1
	lineWords   = LineSize / 4
	highest     = 11 // tree, in lines
	maxLines    = 1 << 27
)

// family is how one family is laid out.
type family struct {
	v4     bool
	end    addr
	slots  int // keys in a line
	bucket int // boundaries in a bucket, on average: at most, and more than half as many
	header int // where in the header, bytes
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

// boundary is where addresses begin to be members until a time; 0 for no members.
type boundary struct {
	at    addr
	until Time
}

// group is a run of buckets that share a tree.
type group struct {
	buckets  int
	from, to int // boundaries
	before   Time
	height   int
	line     int // of the root
}

// part is a family of a set on its way into an image.
type part struct {
	family
	header
	bounds []boundary
	groups []group
	trees  int // lines
	times  bool
}

// Image returns the set as the program looks it up. The same members make the same image.
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
			p.bounds = p.bounds[:end] // behind the last bucket: there are no members anyway
		}
	}
	p.join()
	return p
}

// cut sets how addresses are cut into buckets.
func (p *part) cut(first addr) {
	last := p.last
	if !p.v4 {
		p.skip = uint32(bits.LeadingZeros64(first.hi ^ last.hi))
		if p.skip == 64 { // as far as the window reaches
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

// window is the part of an address by which it is put into a bucket.
func (p *part) window(a addr) uint64 {
	if p.v4 {
		return a.lo
	}
	return a.hi<<p.skip | a.lo>>1>>(63-p.skip)
}

// find returns the bucket of an address, if it has the prefix.
func (p *part) find(a addr) (int, bool) {
	return int(p.window(a)>>p.shift - p.first), p.v4 || a.hi>>1>>(63-p.skip) == p.prefix
}

// join makes groups of buckets.
func (p *part) join() {
	var g group
	n, before := 0, Time(0)
	if p.bounds[0].at == (addr{}) { // has no address before it, so there is no key for it
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

// place gives everything its lines, and returns the next line.
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
		if g.height > highest || line >= maxLines {
			return 0, fmt.Errorf("the set is too large: %d addresses and prefixes lie too close together", len(p.bounds)/2)
		}
	}
	p.trees = line - int(p.treesAt)
	if p.times {
		p.timesAt = uint32(line)
		line += lines(p.trees*p.slots, lineWords)
	}
	return line, nil
}

// lines is how many lines n things take.
func lines(n, inLine int) int { return (n + inLine - 1) / inLine }

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

func (p *part) writeTree(image []byte, g *group) {
	bounds := p.bounds[g.from:g.to]
	// The levels from the root on, in lines.
	var levels [highest]int
	n := 1 + len(bounds)
	for level := g.height - 1; level >= 0; level-- {
		n = lines(n, p.slots)
		levels[level] = n
	}
	line := g.line
	for level := range g.height {
		// How many slots of the leaves are below one slot here.
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

// writeKey writes the key for slot leaf of the leaves into slot n from a line on.
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

func (p *part) writeTimes(image []byte, line int, bounds []boundary, before Time) {
	at := int(p.timesAt)*LineSize + (line-int(p.treesAt))*p.slots*4
	ne.PutUint32(image[at:], uint32(before))
	for n, b := range bounds {
		ne.PutUint32(image[at+4*(n+1):], uint32(b.until))
	}
}
