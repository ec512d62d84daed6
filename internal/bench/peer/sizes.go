// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"net"
	"strconv"

	"culvert/internal/bench/load"
)

// FrameLength is the length of a row's frames, in bytes without the frame check sequence, or IMIX.
type FrameLength int

const (
	// IMIX is a mix of lengths (see load.IMIX).
	IMIX FrameLength = -1
	// MaxSize is the length of the longest frame through a veth with an MTU of 1500.
	MaxSize = load.MinFrame + 1500
)

// String is the length as it is given in options and reports.
func (l FrameLength) String() string {
	if l == IMIX {
		return load.IMIXWord
	}
	return strconv.Itoa(int(l))
}

// Sizes are the lengths that take turns, in bytes.
func (l FrameLength) Sizes() []int {
	if l == IMIX {
		return load.IMIX()
	}
	return []int{int(l)}
}

// ParseSizes reads frame lengths from options: a number of bytes without the frame check sequence, imix, or min for the
// shortest SCION packet.
func ParseSizes(words []string) ([]FrameLength, error) {
	lengths := make([]FrameLength, len(words))
	for i, word := range words {
		switch word {
		case load.IMIXWord:
			lengths[i] = IMIX
			continue
		case Shortest:
			least, err := ShortestSCION()
			if err != nil {
				return nil, err
			}
			lengths[i] = FrameLength(least)
			continue
		}
		n, err := strconv.Atoi(word)
		if err != nil || n < load.MinUDPFrame || n > MaxSize {
			return nil, fmt.Errorf("%w frame size %q: give %d to %d bytes, without the frame check sequence, %s or %s",
				load.ErrUnknown, word, load.MinUDPFrame, MaxSize, Shortest, load.IMIXWord)
		}
		lengths[i] = FrameLength(n)
	}
	return lengths, nil
}

// Shortest stands for the length of the shortest SCION packet on the bench's path.
const Shortest = "min"

// ShortestSCION is the length of the shortest frame with a SCION/UDP packet on the bench's path, in bytes.
func ShortestSCION() (int, error) {
	router, err := benchRouter()
	if err != nil {
		return 0, err
	}
	none := load.End{MAC: make(net.HardwareAddr, 6)}
	frames, err := SCIONTraffic{}.frames(router, Path{Source: none, In: none}, 1)
	if err != nil {
		return 0, err
	}
	return len(frames[0]), nil
}
