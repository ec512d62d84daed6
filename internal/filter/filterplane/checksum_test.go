// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"encoding/binary"
	"testing"

	"culvert/internal/testbed"
)

// TestChecksumsOfSYNAnswers compares the checksums of answers with the checksum over all bytes. The time stamp takes all values
// of 16 bits, so that most of the 65,536 sums occur, among them 0 and 0xffff, which are the same number in ones' complement.
func TestChecksumsOfSYNAnswers(t *testing.T) {
	v4, v6 := newSynStage(t, "2")
	for _, s := range []synStage{v4, v6} {
		seen := make(map[uint16]bool)
		testbed.EachUint16(t, func(n uint16) {
			f := s.frame(func(f *synFrame) { f.opts = linuxOptions(uint32(n)) })
			action, out := s.run(t, f.build())
			if action != testbed.XDPTX {
				t.Fatalf("action %d", action)
			}
			packet := out[14:]
			at := 40
			if packet[0]>>4 == 4 {
				at = 20
				testbed.CheckIPv4Sum(t, packet)
			}
			testbed.CheckL4Sum(t, packet, 16)
			seen[binary.BigEndian.Uint16(packet[at+16:])] = true
		})
		// The cookie changes once a minute, so not all sums need to occur.
		if len(seen) < 1<<15 {
			t.Errorf("%s: %d different checksums", s.to, len(seen))
		}
	}
}
