// SPDX-License-Identifier: Apache-2.0

package filterset

import (
	"errors"
	"fmt"
	"math"
)

var errDamaged = errors.New("the set is damaged: load it again")

// Decode returns the set of which Image has made this image. It returns an error if the image is damaged or of another format.
func Decode(image []byte) (*Prefixes, error) {
	if len(image) < LineSize || len(image)%LineSize != 0 {
		return nil, errDamaged
	}
	if format := ne.Uint32(image); format != imageFormat {
		return nil, fmt.Errorf("the set has format %d, this is format %d: load it again", format, imageFormat)
	}
	v4, err := decodeFamily(image, family4)
	if err != nil {
		return nil, err
	}
	v6, err := decodeFamily(image, family6)
	return &Prefixes{v4: v4, v6: v6}, err
}

// decoder goes through the boundaries of a family in order, and collects the spans between them.
type decoder struct {
	part
	image []byte
	spans []span
	// From from on, addresses are members until until; 0 if they are not.
	from  addr
	until Time
	begun bool // until is set
	lines int  // lines of trees so far
}

func decodeFamily(image []byte, f family) ([]span, error) {
	d := decoder{part: part{family: f}, image: image}
	d.header.read(image[f.header:])
	if d.buckets == 0 {
		return nil, nil
	}
	count := uint64(len(image) / LineSize)
	if uint64(d.tableAt)+uint64(lines(int(d.buckets), lineWords)) > count || uint64(d.timesAt) > count || d.end.less(d.last) {
		return nil, errDamaged
	}
	var tree uint32
	for n := range d.buckets {
		entry := ne.Uint32(image[int(d.tableAt)*LineSize+4*int(n):])
		if n > 0 && entry == tree {
			continue
		}
		tree = entry
		if !d.walk(tree>>5, tree>>1&15, tree&1, true) {
			return nil, errDamaged
		}
	}
	if d.until != 0 {
		if d.last.less(d.from) {
			return nil, errDamaged
		}
		d.spans = append(d.spans, span{d.from, d.last, d.until})
	}
	return d.spans, nil
}

// walk goes through a tree or a subtree. Parity is that of the slots from which on addresses are members: 0 for odd slots, 1 for even
// ones. First says that nothing of the tree comes before the subtree. It returns false if the tree is damaged.
func (d *decoder) walk(line, height, parity uint32, first bool) bool {
	// Each line is in one tree only. So a loop in a damaged image ends.
	d.lines++
	if height == 0 || uint64(line) >= uint64(len(d.image)/LineSize) || d.lines > len(d.image)/LineSize {
		return false
	}
	b := d.image[int(line)*LineSize:][:LineSize]
	for n := range d.slots {
		key, ok := d.key(b, n)
		if n > 0 && !ok {
			return true
		}
		if height > 1 {
			if !d.walk(ne.Uint32(b)+uint32(n), height-1, parity, first && n == 0) {
				return false
			}
			continue
		}
		until, ok := d.time(line, n, parity)
		if !ok {
			return false
		}
		if first && n == 0 {
			if !d.begun { // the span from the first address of the family on
				d.begun, d.until = true, until
			}
			if (until != 0) != (d.until != 0) || d.timesAt != 0 && until != d.until {
				return false
			}
			continue
		}
		if !d.turn(key.next(), until) {
			return false
		}
	}
	return true
}

// key returns the key of slot n. It is false if the slot is empty.
func (d *decoder) key(line []byte, n int) (addr, bool) {
	if d.v4 {
		k := ne.Uint32(line[4*n:])
		return addr{0, uint64(k)}, k != math.MaxUint32
	}
	k := addr{ne.Uint64(line[8*n:]), ne.Uint64(line[8*n+LineSize/2:])}
	return k, k != last6
}

// time returns until when addresses from the boundary in slot n on are members; 0 if they are not. It is false if the image is
// damaged.
func (d *decoder) time(line uint32, n int, parity uint32) (Time, bool) {
	if d.timesAt == 0 {
		if (uint32(n)^parity)&1 != 0 {
			return Never, true
		}
		return 0, true
	}
	at := int(d.timesAt)*LineSize + ((int(line)-int(d.treesAt))*d.slots+n)*4
	if line < d.treesAt || at+4 > len(d.image) {
		return 0, false
	}
	return Time(ne.Uint32(d.image[at:])), true
}

// turn ends the span before a boundary, if there is one, and begins the span after it. It returns false if the boundaries are not in
// order.
func (d *decoder) turn(at addr, until Time) bool {
	if d.until != 0 {
		if !d.from.less(at) {
			return false
		}
		d.spans = append(d.spans, span{d.from, at.before(), d.until})
	}
	d.until, d.from = until, at
	return true
}
