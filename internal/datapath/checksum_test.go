// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"
)

/*
A checksum that is patched (RFC 1624) or folded by the programs is compared with one taken over all that it covers, for
each of the 65,536 sums there are. In one's complement 0 and 0xffff stand for the same: which of them is written matters
where nothing but zeros is covered, and where 0 has a meaning of its own, as in UDP.
*/

// sums calls do for each of them, until the test has failed.
func sums(t *testing.T, do func(n uint16)) {
	for n := range 1 << 16 {
		if do(uint16(n)); t.Failed() {
			t.Fatalf("with %#04x", n)
		}
	}
}

// rightIPv4 checks the header checksum: the very bytes that whoever makes a header writes.
func rightIPv4(t *testing.T, ip []byte) {
	t.Helper()
	if got, want := binary.BigEndian.Uint16(ip[10:]), ^onesSum(ip[:10], ip[12:20]); got != want {
		t.Errorf("header checksum %#04x, want %#04x: %x", got, want, ip[:20])
	}
}

// rightICMP is rightIPv4 for ICMP and ICMPv6.
func rightICMP(t *testing.T, packet []byte) {
	t.Helper()
	at := 22
	var pseudo []byte
	if packet[0]>>4 == 6 {
		at = 42
		pseudo = append(append(bytes.Clone(packet[8:40]), packet[4:6]...), 0, 58)
	}
	if got, want := binary.BigEndian.Uint16(packet[at:]), ^onesSum(pseudo, packet[at-2:at], packet[at+2:]); got != want {
		t.Errorf("ICMP checksum %#04x, want %#04x: %x", got, want, packet)
	}
}

// rightL4 is rightIPv4 for UDP and TCP, whose checksum is so far into the header; UDP writes 0xffff for 0.
func rightL4(t *testing.T, packet []byte, at int) {
	t.Helper()
	src, l4, proto := packet[12:20], packet[20:], packet[9]
	if packet[0]>>4 == 6 {
		src, l4, proto = packet[8:40], packet[40:], packet[6]
	}
	size := binary.BigEndian.AppendUint16(nil, uint16(len(l4)))
	want := ^onesSum(src, []byte{0, proto}, size, l4[:at], l4[at+2:])
	if proto == 17 && want == 0 {
		want = 0xffff
	}
	if got := binary.BigEndian.Uint16(l4[at:]); got != want {
		t.Errorf("checksum %#04x, want %#04x: %x", got, want, packet)
	}
}

// withID gives an IPv4 header a number, and so any sum.
func withID(ip []byte, id uint16) {
	binary.BigEndian.PutUint16(ip[4:], id)
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^onesSum(ip[:20]))
}

func TestChecksumsOfEcho(t *testing.T) {
	b := newBalanceBed(t, BalanceOptions{})
	m := b.member(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []BalanceMember{m})
	b.vip(1, vip6, protoTCP, []BalanceMember{m})
	answer := func(frame []byte) []byte {
		action, out, err := b.inst.TestRunIndex(frame, b.in.Index)
		b.must(err)
		if action != xdpRedirect {
			t.Fatalf("action %d for %x", action, frame)
		}
		return out[14:]
	}
	sums(t, func(n uint16) {
		in := b.icmp("203.0.113.7", "192.0.2.1", 8, 0, uint32(n)<<16, nil)
		withID(in[14:], n)
		packet := answer(in)
		rightIPv4(t, packet)
		rightICMP(t, packet)
		rightICMP(t, answer(b.icmp("2001:db8:7::7", "2001:db8::1", 128, 0, uint32(n)<<16, nil)))
	})
	// Nothing but zeros, of any length, is the only case of which the sum is 0 and not 0xffff.
	for size := range 64 {
		rightICMP(t, answer(b.icmp("203.0.113.7", "192.0.2.1", 8, 0, 0, make([]byte, size))))
	}
	// What is not zero and adds up to 0xffff may have either, and receivers take both (RFC 1071).
	packet := answer(b.icmp("203.0.113.7", "192.0.2.1", 8, 0, 0, []byte{0x12, 0x34, 0xed, 0xcb}))
	if icmpSum(packet) != 0xffff {
		t.Errorf("wrong checksum in %x", packet)
	}
}

// Outer headers are made from nothing: their sources, of the flow's hash, bring them to many sums, lengths to all.
func TestChecksumsOfOuterHeaders(t *testing.T) {
	b := newBalanceBed(t, BalanceOptions{})
	plain := b.member(1, 0, "10.0.0.11")
	gue := b.member(2, 1, "10.0.0.12", func(m *BalanceMember) { m.Encap = BalanceGUE })
	b.vip(0, vip4, protoTCP, []BalanceMember{plain})
	b.vip(1, "192.0.2.2:80", protoTCP, []BalanceMember{gue})
	for _, to := range []string{vip4, "192.0.2.2:80"} {
		in := b.packet(client4, to, &layers.TCP{ACK: true}, nil)
		seen := make(map[uint16]bool)
		sums(t, func(n uint16) {
			binary.BigEndian.PutUint16(in[34:], n) // the client's port, and with it the hash
			in[15] = byte(n*7 + n>>8)
			withID(in[14:], 1)
			_, out, err := b.inst.TestRunIndex(in, b.in.Index)
			b.must(err)
			if len(out) == len(in) {
				t.Fatalf("it was not encapsulated: %x", out)
			}
			rightIPv4(t, out[14:])
			rightIPv4(t, out[len(out)-40:])
			seen[binary.BigEndian.Uint16(out[24:])] = true
		})
		if len(seen) < 1<<15 {
			t.Errorf("%d different checksums", len(seen))
		}
	}
}

func TestChecksumsOfRouter(t *testing.T) {
	b := newRouteBed(t, RouteOptions{NoMirror: true})
	in := b.packet("10.1.0.2", "192.0.2.5", 0, 64)
	for _, either := range []bool{false, true} {
		sums(t, func(n uint16) {
			withID(in[14:], n)
			if check := binary.BigEndian.Uint16(in[24:]); either && check == 0 {
				in[24], in[25] = 0xff, 0xff // which says the same
			} else if either {
				return
			}
			action, out, err := b.inst.TestRunIndex(in, b.west.Index)
			b.must(err)
			if action != xdpRedirect {
				t.Fatalf("action %d for %x", action, in)
			}
			rightIPv4(t, out[14:])
		})
	}
}

func TestChecksumsOfDecap(t *testing.T) {
	b := newDecapBed(t, decapDefaults())
	for _, c := range []struct{ outer, inner uint8 }{{3, 1}, {3, 2}, {1, 2}} { // RFC 6040: 3, 3 and 1 arrive
		s := tunnelled{kind: "ipip", outer: 4, inner: 4, payload: 10, outerTOS: c.outer, innerTOS: c.inner}
		packet := s.packet()
		sums(t, func(n uint16) {
			withID(packet, n)
			frame := s.around(packet)
			withID(frame[14:], n)
			opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
			if _, err := b.prog.Run(&opts); err != nil {
				t.Fatal(err)
			}
			out := opts.DataOut
			if len(out) != len(frame)-20 || out[15] == c.inner {
				t.Fatalf("the mark did not arrive: %x", out)
			}
			rightIPv4(t, out[14:])
		})
	}
}

func TestChecksumsOfSYNAnswers(t *testing.T) {
	v4, v6 := newSynStage(t, "2")
	for _, s := range []synStage{v4, v6} {
		seen := make(map[uint16]bool)
		sums(t, func(n uint16) {
			f := s.frame(func(f *synFrame) { f.opts = linuxOptions(uint32(n)) })
			action, out := s.run(t, f.build())
			if action != xdpTX {
				t.Fatalf("action %d", action)
			}
			packet := out[14:]
			at := 40
			if packet[0]>>4 == 4 {
				at = 20
				rightIPv4(t, packet)
			}
			rightL4(t, packet, 16)
			seen[binary.BigEndian.Uint16(packet[at+16:])] = true
		})
		// The time stamp that is sent back goes through all sums; the cookie changes once a minute.
		if len(seen) < 1<<15 {
			t.Errorf("%s: %d different checksums", s.to, len(seen))
		}
	}
}

func TestChecksumsOfSCION(t *testing.T) {
	inNamespace(t)
	in := addVeth(t, "a0", "a1")
	out := addVeth(t, "b0", "b1")
	inst := mustAttach(t, testConfig(1, 2), "a0", "b0")
	openWay(t, inst, out)
	frame := sizedTransitFrame(t, in, testKey, 64)
	payload := len(frame) - 2
	sums(t, func(n uint16) {
		binary.BigEndian.PutUint16(frame[payload:], n)
		udp := frame[34:]
		udp[6], udp[7] = 0, 0
		size := binary.BigEndian.AppendUint16(nil, uint16(len(udp)))
		check := ^onesSum(frame[26:34], []byte{0, 17}, size, udp)
		if check == 0 {
			check = 0xffff
		}
		binary.BigEndian.PutUint16(udp[6:], check)
		action, after, err := inst.TestRunIndex(frame, in.Index)
		if err != nil || action != xdpRedirect {
			t.Fatalf("action %d, %v", action, err)
		}
		rightIPv4(t, after[14:])
		rightL4(t, after[14:], 6)
	})
}
