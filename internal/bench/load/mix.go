// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"strconv"
)

// IMIXWord stands for IMIX in options and reports.
const IMIXWord = "imix"

// IMIX is the usual simple mix of frame lengths, in bytes: of twelve frames seven have 64 bytes, four 594 and one 1518, with
// the frame check sequence. The lengths returned are without it. Frames have them in the order of the slice, repeated
// (RFC 6985 asks for that order).
func IMIX() []int {
	const short, middle, long = 64 - fcsLen, 594 - fcsLen, 1518 - fcsLen
	return []int{short, middle, short, short, middle, short, short, middle, short, middle, short, long}
}

// fcsLen is the length of the frame check sequence in bytes. Frames in memory do not have it.
const fcsLen = 4

// ParseSizes reads frame lengths in bytes. IMIXWord stands for those of IMIX.
func ParseSizes(words []string) ([]int, error) {
	var sizes []int
	for _, w := range words {
		if w == IMIXWord {
			sizes = append(sizes, IMIX()...)
			continue
		}
		n, err := strconv.Atoi(w)
		if err != nil {
			return nil, fmt.Errorf("%q is no length in bytes, nor %s", w, IMIXWord)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}
