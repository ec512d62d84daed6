// SPDX-License-Identifier: Apache-2.0

package scionpkt

import "encoding/binary"

// Edit carries out a script of changes on a copy of a frame, for fuzzing: any script is valid. The
// first byte says what is mended afterwards: with bit 0 set nothing, else the outer lengths and
// checksums; with bit 1 set an absent UDP checksum is left absent. Each three bytes after it are
// an offset and a value: the value is XORed into the byte at the offset from the start of the
// SCION header, or with the top bit of the offset set, from the start of the frame. With the next
// bit set the frame is cut there instead, or lengthened by the value if it ends before.
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
