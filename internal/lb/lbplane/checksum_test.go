// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/testbed"
)

/*
A checksum that is patched (RFC 1624) or folded by the programs is compared with one taken over all that it covers, for
each of the 65,536 sums there are. In one's complement 0 and 0xffff stand for the same: which of them is written matters
where nothing but zeros is covered, and where 0 has a meaning of its own, as in UDP.
*/

func TestChecksumsOfEcho(t *testing.T) {
	b := newBed(t, Options{})
	m := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{m})
	b.vip(1, vip6, protoTCP, []Backend{m})
	answer := func(frame []byte) []byte {
		action, out, err := b.inst.TestRunIndex(frame, b.in.Index)
		b.must(err)
		if action != testbed.XDPRedirect {
			t.Fatalf("action %d for %x", action, frame)
		}
		return out[14:]
	}
	testbed.Sums(t, func(n uint16) {
		in := b.icmp("203.0.113.7", "192.0.2.1", 8, 0, uint32(n)<<16, nil)
		testbed.WithID(in[14:], n)
		packet := answer(in)
		testbed.RightIPv4(t, packet)
		testbed.RightICMP(t, packet)
		testbed.RightICMP(t, answer(b.icmp("2001:db8:7::7", "2001:db8::1", 128, 0, uint32(n)<<16, nil)))
	})
	// Nothing but zeros, of any length, is the only case of which the sum is 0 and not 0xffff.
	for size := range 64 {
		testbed.RightICMP(t, answer(b.icmp("203.0.113.7", "192.0.2.1", 8, 0, 0, make([]byte, size))))
	}
	// What is not zero and adds up to 0xffff may have either, and receivers take both (RFC 1071).
	packet := answer(b.icmp("203.0.113.7", "192.0.2.1", 8, 0, 0, []byte{0x12, 0x34, 0xed, 0xcb}))
	if icmpSum(packet) != 0xffff {
		t.Errorf("wrong checksum in %x", packet)
	}
}

// Outer headers are made from nothing: their sources, of the flow's hash, bring them to many sums, lengths to all.
func TestChecksumsOfOuterHeaders(t *testing.T) {
	b := newBed(t, Options{})
	plain := b.backend(1, 0, "10.0.0.11")
	gue := b.backend(2, 1, "10.0.0.12", func(m *Backend) { m.Encap = GUE })
	b.vip(0, vip4, protoTCP, []Backend{plain})
	b.vip(1, "192.0.2.2:80", protoTCP, []Backend{gue})
	for _, to := range []string{vip4, "192.0.2.2:80"} {
		in := b.packet(client4, to, &layers.TCP{ACK: true}, nil)
		seen := make(map[uint16]bool)
		testbed.Sums(t, func(n uint16) {
			binary.BigEndian.PutUint16(in[34:], n) // the client's port, and with it the hash
			in[15] = byte(n*7 + n>>8)
			testbed.WithID(in[14:], 1)
			_, out, err := b.inst.TestRunIndex(in, b.in.Index)
			b.must(err)
			if len(out) == len(in) {
				t.Fatalf("it was not encapsulated: %x", out)
			}
			testbed.RightIPv4(t, out[14:])
			testbed.RightIPv4(t, out[len(out)-40:])
			seen[binary.BigEndian.Uint16(out[24:])] = true
		})
		if len(seen) < 1<<15 {
			t.Errorf("%d different checksums", len(seen))
		}
	}
}
