// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"strconv"
)

// frameLength says how long the frames of a row are: in bytes without the frame check sequence, or imix for a mix.
type frameLength int

// imix is the word for, and the length of, frames of mixed lengths.
const (
	imixWord             = "imix"
	imix     frameLength = 0
)

// maxSize is that of the longest frame through a veth with an MTU of 1500.
const maxSize = minFrame + 1500

func (l frameLength) String() string {
	if l == imix {
		return imixWord
	}
	return strconv.Itoa(int(l))
}

// parseSizes reads frame lengths as the user gives them: a number of bytes without the frame check sequence, or imix.
func parseSizes(words []string) ([]frameLength, error) {
	lengths := make([]frameLength, len(words))
	for i, word := range words {
		if word == imixWord {
			continue
		}
		n, err := strconv.Atoi(word)
		if err != nil || n < minUDPFrame || n > maxSize {
			return nil, fmt.Errorf("%w frame size %q: give %d to %d bytes, without the frame check sequence, or %s",
				ErrUnknown, word, minUDPFrame, maxSize, imixWord)
		}
		lengths[i] = frameLength(n)
	}
	return lengths, nil
}
