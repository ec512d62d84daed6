// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"

	"culvert/internal/testbed"
)

/*
A checksum that is patched (RFC 1624) or folded by the programs is compared with one taken over all that it covers, for
each of the 65,536 sums there are. In one's complement 0 and 0xffff stand for the same: which of them is written matters
where nothing but zeros is covered, and where 0 has a meaning of its own, as in UDP.
*/

func TestChecksumsOfDecap(t *testing.T) {
	b := newDecapBed(t, decapDefaults())
	for _, c := range []struct{ outer, inner uint8 }{{3, 1}, {3, 2}, {1, 2}} { // RFC 6040: 3, 3 and 1 arrive
		s := tunnelled{kind: "ipip", outer: 4, inner: 4, payload: 10, outerTOS: c.outer, innerTOS: c.inner}
		packet := s.packet()
		testbed.Sums(t, func(n uint16) {
			testbed.WithID(packet, n)
			frame := s.around(packet)
			testbed.WithID(frame[14:], n)
			opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
			if _, err := b.prog.Run(&opts); err != nil {
				t.Fatal(err)
			}
			out := opts.DataOut
			if len(out) != len(frame)-20 || out[15] == c.inner {
				t.Fatalf("the mark did not arrive: %x", out)
			}
			testbed.RightIPv4(t, out[14:])
		})
	}
}

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

func TestChecksumsOfSCION(t *testing.T) {
	testbed.InNamespace(t)
	in := testbed.AddVeth(t, "a0", "a1")
	out := testbed.AddVeth(t, "b0", "b1")
	inst := mustAttach(t, testConfig(1, 2), "a0", "b0")
	openWay(t, inst, out)
	frame := sizedTransitFrame(t, in, testKey, 64)
	payload := len(frame) - 2
	testbed.Sums(t, func(n uint16) {
		binary.BigEndian.PutUint16(frame[payload:], n)
		udp := frame[34:]
		udp[6], udp[7] = 0, 0
		size := binary.BigEndian.AppendUint16(nil, uint16(len(udp)))
		check := ^testbed.OnesSum(frame[26:34], []byte{0, 17}, size, udp)
		if check == 0 {
			check = 0xffff
		}
		binary.BigEndian.PutUint16(udp[6:], check)
		action, after, err := inst.TestRunIndex(frame, in.Index)
		if err != nil || action != testbed.XDPRedirect {
			t.Fatalf("action %d, %v", action, err)
		}
		testbed.RightIPv4(t, after[14:])
		testbed.RightL4(t, after[14:], 6)
	})
}
