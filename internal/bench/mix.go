// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"slices"
	"strconv"
)

// IMIX is the usual simple mix of frame lengths: of twelve frames seven have 64 bytes, four 594 and one 1518, with the
// frame check sequence. Here they are without it. RFC 6985 wants the order of a mix told: it is that of the slice, over
// and over.
func IMIX() []int {
	const short, middle, long = 64 - fcsLen, 594 - fcsLen, 1518 - fcsLen
	return []int{short, middle, short, short, middle, short, short, middle, short, middle, short, long}
}

// fcsLen is the length of the frame check sequence, which frames have only on the wire.
const fcsLen = 4

// mix makes n frames as frames does, of sizes by turns. Frames whose headers alone take more than their size are as
// long as these: of an IMIX those of 64 bytes.
func (t scionTraffic) mix(r scionRouter, p Path, n int, sizes []int) ([][]byte, error) {
	mixed := make([][]byte, n)
	unique := slices.Clone(sizes)
	slices.Sort(unique)
	for _, size := range slices.Compact(unique) {
		t.size = size
		frames, err := t.frames(r, p, n)
		if err != nil {
			return nil, err
		}
		for i, f := range frames {
			if sizes[i%len(sizes)] == size {
				mixed[i] = f
			}
		}
	}
	return mixed, nil
}

// ParseSizes reads frame lengths in bytes; imixWord stands for those of IMIX.
func ParseSizes(words []string) ([]int, error) {
	var sizes []int
	for _, w := range words {
		if w == imixWord {
			sizes = append(sizes, IMIX()...)
			continue
		}
		n, err := strconv.Atoi(w)
		if err != nil {
			return nil, fmt.Errorf("%q is no length in bytes, nor %s", w, imixWord)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}
