// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"slices"
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

// imixLengths are those of twelve frames in a row of the simple IMIX: seven with IP packets of 40 bytes, padded as
// Ethernet has it, four of 576 and one of 1500 (RFC 6985 describes such mixes as genomes).
var imixLengths = [...]int{60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60}

func (l frameLength) String() string {
	if l == imix {
		return imixWord
	}
	return strconv.Itoa(int(l))
}

// of is the length of frame i.
func (l frameLength) of(i int) int {
	if l == imix {
		return imixLengths[i%len(imixLengths)]
	}
	return int(l)
}

// shortest is the length of the shortest frame.
func (l frameLength) shortest() int {
	if l == imix {
		return slices.Min(imixLengths[:])
	}
	return int(l)
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

// udpFrames are n frames of UDP flows of such lengths (see UDPFrames).
func (l frameLength) udpFrames(n int) ([][]byte, error) {
	if l != imix {
		return UDPFrames(n, int(l))
	}
	byLength := map[int][][]byte{}
	frames := make([][]byte, n)
	for i := range frames {
		length := l.of(i)
		if byLength[length] == nil {
			var err error
			if byLength[length], err = UDPFrames(n, length); err != nil {
				return nil, err
			}
		}
		frames[i] = byLength[length][i]
	}
	return frames, nil
}
