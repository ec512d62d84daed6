// SPDX-License-Identifier: Apache-2.0

package scionpkt

import "encoding/binary"

// Edit applies a script of changes to a copy of a frame, for fuzzing. Every script is valid.
//
// The first byte has flags. Unless bit 0 is set, Edit fixes the outer lengths and checksums at the end.
// If bit 1 is set, it then leaves an absent UDP checksum absent.
//
// Each following group of three bytes is an offset, in network byte order, and a value. The lower 14 bits
// of the offset count from the start of the SCION header or, if the top bit is set, of the frame. The
// value is XORed into the byte there. If the second bit from the top is set, the frame is cut there
// instead or, if it ends before, lengthened by value bytes.
func Edit(frame, script []byte) []byte {
	f := append(make([]byte, 0, len(frame)+256), frame...)
	l, ok := Locate(f)
	if !ok || len(script) == 0 {
		return f
	}
	absent := absentChecksum(f)
	flags := script[0]
	for script = script[1:]; len(script) >= 3; script = script[3:] {
		word, value := binary.BigEndian.Uint16(script), script[2]
		at := int(word & 0x3fff)
		if word&0x8000 == 0 {
			at += l.SCION
		}
		switch {
		case word&0x4000 == 0 && at < len(f):
			f[at] ^= value
		case word&0x4000 != 0 && at < len(f):
			f = f[:max(at, EthernetLen)]
		case word&0x4000 != 0:
			f = append(f, make([]byte, value)...)
		}
	}
	if flags&1 == 0 {
		FixOuter(f)
		if l, ok := Locate(f); ok && flags&2 != 0 && absent && !l.IPv6 {
			f[l.UDP+6], f[l.UDP+7] = 0, 0
		}
	}
	return f
}
