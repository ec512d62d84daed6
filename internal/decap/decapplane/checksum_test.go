// SPDX-License-Identifier: Apache-2.0

package decapplane

import (
	"testing"

	"github.com/cilium/ebpf"

	"culvert/internal/testbed"
)

// TestChecksumsOfDecap changes the ECN mark of inner IPv4 headers, where the program updates the checksum incrementally (RFC
// 1624). The result is compared with a full checksum, for all 65,536 values.
func TestChecksumsOfDecap(t *testing.T) {
	b := newBed(t, defaults())
	for _, c := range []struct{ outer, inner uint8 }{{3, 1}, {3, 2}, {1, 2}} { // RFC 6040: 3, 3 and 1 arrive
		s := tunnelled{kind: "ipip", outer: 4, inner: 4, payload: 10, outerTOS: c.outer, innerTOS: c.inner}
		packet := s.packet()
		testbed.EachUint16(t, func(n uint16) {
			testbed.SetIPv4ID(packet, n)
			frame := s.around(packet)
			testbed.SetIPv4ID(frame[14:], n)
			opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
			if _, err := b.prog.Run(&opts); err != nil {
				t.Fatal(err)
			}
			out := opts.DataOut
			if len(out) != len(frame)-20 || out[15] == c.inner {
				t.Fatalf("the mark did not arrive: %x", out)
			}
			testbed.CheckIPv4Sum(t, out[14:])
		})
	}
}
