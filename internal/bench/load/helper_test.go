// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/binary"
	"testing"
)

func testNetns(t *testing.T) *Netns {
	t.Helper()
	s, err := NewNetns()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func testWire(t *testing.T, a, b *Netns, nameA, nameB string) (End, End) {
	t.Helper()
	endA, endB, err := NewWire(a, b, nameA, nameB, 0)
	if err != nil {
		t.Fatal(err)
	}
	return endA, endB
}

// tagAt is the offset in bytes where taggedFrames puts the number of a frame. It is that of the payload of UDP over IPv4.
const tagAt = 14 + 20 + 8

// taggedFrames makes n frames of an experimental protocol (EtherType 0x88b5), each with its number at tagAt. Their lengths
// in bytes take turns.
func taggedFrames(n int, sizes ...int) [][]byte {
	frames := make([][]byte, n)
	for i := range frames {
		f := make([]byte, sizes[i%len(sizes)])
		copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5})
		binary.BigEndian.PutUint32(f[tagAt:], uint32(i))
		frames[i] = f
	}
	return frames
}
