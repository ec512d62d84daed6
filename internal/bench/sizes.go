// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"net"
	"strconv"
)

// frameLength says how long the frames of a row are, in bytes without the frame check sequence.
type frameLength int

const (
	// imix is a mix of lengths (see IMIX).
	imix frameLength = -1
	// maxSize is the length of the longest frame through a veth with an MTU of 1500.
	maxSize = minFrame + 1500
)

func (l frameLength) String() string {
	if l == imix {
		return imixWord
	}
	return strconv.Itoa(int(l))
}

// sizes are the lengths that frames have by turns.
func (l frameLength) sizes() []int {
	if l == imix {
		return IMIX()
	}
	return []int{int(l)}
}

// parseSizes reads frame lengths as the user gives them: a number of bytes without the frame check sequence, imix, or
// min for the shortest SCION packet.
func parseSizes(words []string) ([]frameLength, error) {
	lengths := make([]frameLength, len(words))
	for i, word := range words {
		switch word {
		case imixWord:
			lengths[i] = imix
			continue
		case shortest:
			least, err := shortestSCION()
			if err != nil {
				return nil, err
			}
			lengths[i] = frameLength(least)
			continue
		}
		n, err := strconv.Atoi(word)
		if err != nil || n < minUDPFrame || n > maxSize {
			return nil, fmt.Errorf("%w frame size %q: give %d to %d bytes, without the frame check sequence, %s or %s",
				ErrUnknown, word, minUDPFrame, maxSize, shortest, imixWord)
		}
		lengths[i] = frameLength(n)
	}
	return lengths, nil
}

// shortest stands for the length of the shortest SCION packet on the bench's path.
const shortest = "min"

// shortestSCION is the length of the shortest frame with a SCION/UDP packet on the bench's path, in bytes.
func shortestSCION() (int, error) {
	router, err := benchRouter()
	if err != nil {
		return 0, err
	}
	none := End{MAC: make(net.HardwareAddr, 6)}
	frames, err := scionTraffic{}.frames(router, Path{Source: none, In: none}, 1)
	if err != nil {
		return 0, err
	}
	return len(frames[0]), nil
}
