// SPDX-License-Identifier: Apache-2.0

package decapplane

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"culvert/internal/testbed"
)

// decapSum adds up big-endian words of 16 bits (RFC 1071).
func decapSum(sum uint32, b []byte) uint16 {
	for n, v := range b {
		if n%2 == 0 {
			sum += uint32(v) << 8
		} else {
			sum += uint32(v)
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// ipPacket is an IP packet as the model parses it.
type ipPacket struct {
	bytes   []byte // header and payload, without bytes behind the packet
	payload []byte
	proto   byte // protocol of IPv4, next header of IPv6
	ecn     byte
	src     []byte
	dst     []byte
}

// readIP parses an IP packet at the start of b. It is false if that is not a complete packet of the version.
func readIP(b []byte, version int) (p ipPacket, ok bool) {
	if version == 6 {
		if len(b) < 40 || b[0]>>4 != 6 {
			return p, false
		}
		n := 40 + int(binary.BigEndian.Uint16(b[4:]))
		if n > len(b) {
			return p, false
		}
		return ipPacket{b[:n], b[40:n], b[6], b[1] >> 4 & 3, b[8:24], b[24:40]}, true
	}
	if len(b) < 20 || b[0]>>4 != 4 {
		return p, false
	}
	head, n := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if head < 20 || n < head || n > len(b) {
		return p, false
	}
	return ipPacket{b[:n], b[head:n], b[9], b[1] & 3, b[12:16], b[16:20]}, true
}

// openGUE returns the packet in a UDP packet of GUE, and its IP version. The version is 0 if it is not GUE, or not complete.
func openGUE(p ipPacket, port uint16) ([]byte, int) {
	udp := p.payload
	if len(udp) < 8 || binary.BigEndian.Uint16(udp[2:]) != port {
		return nil, 0
	}
	n := int(binary.BigEndian.Uint16(udp[4:]))
	if n < 12 || n > len(udp) {
		return nil, 0
	}
	udp = udp[:n]
	if pseudo := uint32(decapSum(uint32(n+17), slices.Concat(p.src, p.dst))); udp[6]|udp[7] != 0 && decapSum(pseudo, udp) != 0xffff {
		return nil, 0
	}
	gue := udp[8:]
	switch gue[0] >> 4 {
	case 4, 6:
		return gue, int(gue[0] >> 4)
	case 0, 1:
		skip := 4 + 4*int(gue[0]&0x1f)
		version := map[byte]int{4: 4, 41: 6}[gue[1]]
		if gue[2] == 0 && gue[3] == 0 && skip <= len(gue) {
			return gue[skip:], version
		}
	}
	return nil, 0
}

// decapModel is a second implementation of the program, for frames in one buffer. It returns the frame that the kernel should
// get, or that the frame should be dropped because of ECN. The capacity of frame has to be its length.
func decapModel(frame []byte, o Options) (out []byte, dropped bool) {
	l2 := 14
	if bytes.Equal(frame[12:14], []byte{0x81, 0}) {
		l2 = 18
	}
	if len(frame) < l2 || !bytes.Equal(frame[:6], decapMAC) {
		return frame, false
	}
	version := map[uint16]int{0x0800: 4, 0x86dd: 6}[binary.BigEndian.Uint16(frame[l2-2:])]
	outer, ok := readIP(frame[l2:], version)
	if version == 0 || !ok {
		return frame, false
	}
	b := outer.bytes
	if version == 4 && (b[0] != 0x45 || b[6]&0x3f|b[7] != 0 || decapSum(0, b[:20]) != 0xffff) {
		return frame, false
	}
	if dst, _ := netip.AddrFromSlice(outer.dst); !slices.Contains(o.Local, dst) {
		return frame, false
	}
	payload, version := outer.payload, 0
	switch outer.proto {
	case 4:
		version = 4
	case 41:
		version = 6
	case 17:
		payload, version = openGUE(outer, o.GUEPort)
	}
	inner, ok := readIP(payload, version)
	if version == 0 || !ok {
		return frame, false
	}
	if outer.ecn == 3 && inner.ecn == 0 {
		return nil, true
	}
	out = append(bytes.Clone(frame[:l2-2]), map[int][]byte{4: {8, 0}, 6: {0x86, 0xdd}}[version]...)
	out = append(out, payload[:cap(payload)]...) // with the bytes behind it
	ecn := inner.ecn
	switch {
	case outer.ecn == 3:
		ecn = 3
	case outer.ecn == 1 && ecn == 2:
		ecn = 1
	}
	setECN(out[l2:], version, ecn)
	return out, false
}

// setECN writes the ECN bits, and updates the checksum of IPv4.
func setECN(ip []byte, version int, ecn byte) {
	if version == 6 {
		ip[1] = ip[1]&^0x30 | ecn<<4
		return
	}
	before := binary.BigEndian.Uint16(ip)
	ip[1] = ip[1]&^3 | ecn
	if now := binary.BigEndian.Uint16(ip); now != before {
		sum := uint32(^binary.BigEndian.Uint16(ip[10:])) + uint32(^before) + uint32(now)
		binary.BigEndian.PutUint16(ip[10:], ^decapSum(sum, nil))
	}
}

// agrees checks that the program and the model agree about a frame.
func (b *bed) agrees(t *testing.T, frame []byte, o Options) {
	t.Helper()
	frame = slices.Clip(bytes.Clone(frame))
	reason, action, out := b.run(t, frame)
	want, dropped := decapModel(frame, o)
	switch {
	case dropped:
		if action != testbed.XDPDrop || reason != "drop ecn" {
			t.Errorf("action %d, %s: want it dropped because of ECN\n%x", action, reason, frame)
		}
	case action != testbed.XDPPass || !bytes.Equal(out, want):
		t.Errorf("action %d, %s\n%x becomes\n%x, want\n%x", action, reason, frame, out, want)
	case (reason[:5] == "decap") == bytes.Equal(frame, want):
		t.Errorf("%s\n%x becomes\n%x", reason, frame, out)
	}
}

// maxFuzzed is the length of the longest frame of these tests, in bytes. It fits one buffer.
const maxFuzzed = 2000

// TestDecapMutated compares program and model for mutated packets, and checks the counters.
func TestDecapMutated(t *testing.T) {
	o := defaults()
	b := newBed(t, o)
	r := rand.New(rand.NewPCG(6040, 2003))
	taken := 0
	for range 300 {
		for _, s := range decapKinds() {
			s.payload, s.sum, s.words, s.outerTOS, s.innerTOS = r.IntN(64), r.IntN(2) == 0, r.IntN(4), byte(r.IntN(4)), byte(r.IntN(4))
			if r.IntN(4) == 0 {
				s.vlan = 9
			}
			s.pad = r.IntN(2) * r.IntN(20)
			frame := s.frame()
			mutate(r, frame, s.l2())
			frame = frame[:len(frame)-r.IntN(2)*r.IntN(len(frame)-14)]
			if out, _ := decapModel(slices.Clip(frame), o); !bytes.Equal(out, frame) {
				taken++
			}
			b.agrees(t, frame, o)
			if t.Failed() {
				return
			}
		}
	}
	if all := 300 * len(decapKinds()); taken < all/10 || taken > all*9/10 {
		t.Errorf("%d of %d packets were decapsulated: want between 10 and 90 percent", taken, all)
	}
	b.countsAgree(t)
}

// mutate changes a few bits and bytes of the headers. Half of the time it corrects the checksum of an outer IPv4 header.
func mutate(r *rand.Rand, frame []byte, l2 int) {
	for range r.IntN(3) {
		at := r.IntN(min(len(frame), 110))
		if r.IntN(2) == 0 {
			frame[at] ^= 1 << r.IntN(8)
		} else {
			frame[at] = byte(r.Uint32())
		}
	}
	if ip := frame[l2:]; r.IntN(2) == 0 && ip[0] == 0x45 {
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^decapSum(0, ip[:20]))
	}
}

func FuzzDecap(f *testing.F) {
	o := defaults()
	b := newBed(f, o)
	for _, s := range decapKinds() {
		f.Add(s.frame())
		s.vlan, s.words, s.outerTOS, s.innerTOS = 1, 3, 3, 1
		f.Add(s.frame())
		s.sum, s.pad, s.payload = true, 2, 31
		f.Add(s.frame())
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) >= 14 && len(frame) <= maxFuzzed {
			b.agrees(t, frame, o)
		}
	})
}
