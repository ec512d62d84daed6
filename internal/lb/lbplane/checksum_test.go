// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/testbed"
)

/*
The programs update checksums (RFC 1624) or fold them. These tests compare the result with a checksum over all that it covers,
for each of the 65,536 sums. In one's complement 0 and 0xffff are the same number. It matters which of them is written if all
data is zero, and where 0 has a meaning of its own, as in UDP.
*/

// TestChecksumsOfEcho checks answers to echo requests.
func TestChecksumsOfEcho(t *testing.T) {
	b := newBed(t, Options{})
	backend := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{backend})
	b.vip(1, vip6, protoTCP, []Backend{backend})
	answer := func(frame []byte) []byte {
		action, out, err := b.inst.TestRunIndex(frame, b.in.Index)
		b.must(err)
		if action != testbed.XDPRedirect {
			t.Fatalf("action %d for %x", action, frame)
		}
		return out[14:]
	}
	testbed.EachUint16(t, func(n uint16) {
		in := b.icmp("203.0.113.7", "192.0.2.1", 8, 0, uint32(n)<<16, nil)
		testbed.SetIPv4ID(in[14:], n)
		packet := answer(in)
		testbed.CheckIPv4Sum(t, packet)
		testbed.CheckICMPSum(t, packet)
		testbed.CheckICMPSum(t, answer(b.icmp("2001:db8:7::7", "2001:db8::1", 128, 0, uint32(n)<<16, nil)))
	})
	// Zeros alone have the sum 0, whatever their number. The sum of other data is never 0, but it may be 0xffff.
	for size := range 64 {
		testbed.CheckICMPSum(t, answer(b.icmp("203.0.113.7", "192.0.2.1", 8, 0, 0, make([]byte, size))))
	}
	// If other data has the sum 0xffff, the checksum may be 0 or 0xffff: receivers accept both (RFC 1071).
	packet := answer(b.icmp("203.0.113.7", "192.0.2.1", 8, 0, 0, []byte{0x12, 0x34, 0xed, 0xcb}))
	if icmpSum(packet) != 0xffff {
		t.Errorf("wrong checksum in %x", packet)
	}
}

// TestChecksumsOfOuterHeaders checks outer headers, whose checksums the programs do not update but compute. They get many
// different sums, because their sources depend on the hash of the flow.
func TestChecksumsOfOuterHeaders(t *testing.T) {
	b := newBed(t, Options{})
	plain := b.backend(1, 0, "10.0.0.11")
	gue := b.backend(2, 1, "10.0.0.12", func(backend *Backend) { backend.Encap = GUE })
	b.vip(0, vip4, protoTCP, []Backend{plain})
	b.vip(1, "192.0.2.2:80", protoTCP, []Backend{gue})
	for _, to := range []string{vip4, "192.0.2.2:80"} {
		in := b.packet(client4, to, &layers.TCP{ACK: true}, nil)
		seen := make(map[uint16]bool)
		testbed.EachUint16(t, func(n uint16) {
			binary.BigEndian.PutUint16(in[34:], n) // the client's port, and with it the hash
			in[15] = byte(n*7 + n>>8)
			testbed.SetIPv4ID(in[14:], 1)
			_, out, err := b.inst.TestRunIndex(in, b.in.Index)
			b.must(err)
			if len(out) == len(in) {
				t.Fatalf("it was not encapsulated: %x", out)
			}
			testbed.CheckIPv4Sum(t, out[14:])
			testbed.CheckIPv4Sum(t, out[len(out)-40:])
			seen[binary.BigEndian.Uint16(out[24:])] = true
		})
		if len(seen) < 1<<15 {
			t.Errorf("%d different checksums", len(seen))
		}
	}
}
