// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"encoding/binary"
	"testing"

	"culvert/internal/testbed"
)

/*
A checksum that is patched (RFC 1624) or folded by the programs is compared with one taken over all that it covers, for
each of the 65,536 sums there are. In one's complement 0 and 0xffff stand for the same: which of them is written matters
where nothing but zeros is covered, and where 0 has a meaning of its own, as in UDP.
*/

func TestChecksumsOfSYNAnswers(t *testing.T) {
	v4, v6 := newSynStage(t, "2")
	for _, s := range []synStage{v4, v6} {
		seen := make(map[uint16]bool)
		testbed.Sums(t, func(n uint16) {
			f := s.frame(func(f *synFrame) { f.opts = linuxOptions(uint32(n)) })
			action, out := s.run(t, f.build())
			if action != testbed.XDPTX {
				t.Fatalf("action %d", action)
			}
			packet := out[14:]
			at := 40
			if packet[0]>>4 == 4 {
				at = 20
				testbed.RightIPv4(t, packet)
			}
			testbed.RightL4(t, packet, 16)
			seen[binary.BigEndian.Uint16(packet[at+16:])] = true
		})
		// The time stamp that is sent back goes through all sums; the cookie changes once a minute.
		if len(seen) < 1<<15 {
			t.Errorf("%s: %d different checksums", s.to, len(seen))
		}
	}
}
