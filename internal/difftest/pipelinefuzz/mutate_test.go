// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"bytes"
	"slices"
)

// script is a source of choices: random bytes, or those of the fuzzer. After its end all choices are 0.
type script struct{ b []byte }

func (s *script) byte() byte {
	if len(s.b) == 0 {
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return v
}

func (s *script) word() int { return int(s.byte())<<8 | int(s.byte()) }

// below chooses a number below n, which is at most 65536.
func (s *script) below(n int) int {
	if n <= 1 {
		return 0
	}
	if n <= 256 {
		return int(s.byte()) % n
	}
	return s.word() % n
}

// longest is the length of the longest frame in bytes.
const longest = 9000

// mutate changes a trial as a script says. Every script is valid.
func mutate(tr trial, s *script, others []trial) trial {
	tr.frame = bytes.Clone(tr.frame)
	for range 1 + s.below(4) {
		if len(s.b) == 0 {
			break
		}
		tr = changed(tr, s, others)
		tr.frame = tr.frame[:min(len(tr.frame), longest)]
	}
	// With right checksums the frame gets further than the changed header.
	how := s.byte()
	if how&1 != 0 {
		fixIP(tr.frame)
	}
	if how&2 != 0 {
		fixTransport(tr.frame)
	}
	if how&4 != 0 {
		tr.first = 14 + s.below(max(len(tr.frame)-14, 1))
	}
	return tr
}

// changes are the changes of mutate. Each function gets the frame, its view and the offset of its IP header, and changes the
// frame in place or replaces tr.frame.
var changes = []struct {
	name  string
	apply func(tr *trial, f []byte, v view, l3 int, s *script, others []trial)
}{
	{"a bit of the headers", func(_ *trial, f []byte, _ view, _ int, s *script, _ []trial) {
		f[offset(f, s, 12, 100)] ^= 1 << s.below(8)
	}},
	{"a byte of the headers", func(_ *trial, f []byte, _ view, _ int, s *script, _ []trial) {
		f[offset(f, s, 12, 100)] = s.byte()
	}},
	{"any byte", func(_ *trial, f []byte, _ view, _ int, s *script, _ []trial) {
		f[offset(f, s, 0, len(f))] = s.byte()
	}},
	{"cut off", func(tr *trial, f []byte, _ view, _ int, s *script, _ []trial) {
		tr.frame = f[:14+s.below(len(f)-13)]
	}},
	{"padded", func(tr *trial, f []byte, _ view, _ int, s *script, _ []trial) {
		tr.frame = append(f, make([]byte, s.below(300))...)
	}},
	{"a tag added", func(tr *trial, f []byte, _ view, _ int, s *script, _ []trial) {
		kind := []byte{0x81, 0x00}
		if s.below(4) == 0 {
			kind = []byte{0x88, 0xa8}
		}
		tag := []byte{s.byte(), []byte{vlanIn, 7, 0, s.byte()}[s.below(4)]}
		if s.below(2) == 0 {
			tag[0] &= 0xf0
		}
		tr.frame = slices.Insert(f, 12, slices.Concat(kind, tag)...)
	}},
	{"the outermost tag removed", func(tr *trial, f []byte, v view, _ int, _ *script, _ []trial) {
		if len(v.tags) > 0 {
			tr.frame = slices.Delete(f, 12, 16)
		}
	}},
	{"length of IP", func(_ *trial, f []byte, v view, l3 int, s *script, _ []trial) {
		if len(f) >= l3+6 {
			field := l3 + 2
			if v.kind == typeIPv6 {
				field = l3 + 4
			}
			be.PutUint16(f[field:], uint16([]int{len(f) - l3, len(f) - l3 - 40, s.below(64), be16(f[field:]) + s.below(9) - 4, s.word()}[s.below(5)]))
		}
	}},
	{"fragment word", func(_ *trial, f []byte, v view, l3 int, s *script, _ []trial) {
		if v.kind == typeIPv4 && len(f) >= l3+8 {
			be.PutUint16(f[l3+6:], []uint16{0x2000, 1, 0x2001, 0x4000, 0x8000, 0x1fff, 0x3fff, uint16(s.word())}[s.below(8)])
		}
	}},
	{"IPv4 options added", func(tr *trial, f []byte, v view, l3 int, s *script, _ []trial) {
		if v.ip == 4 && v.head < 60 {
			words := 1 + s.below((60-v.head)/4)
			options := make([]byte, 4*words)
			for n := range options {
				options[n] = []byte{1, 0, 7, 131, 148, 68, 4, s.byte()}[s.below(8)]
			}
			tr.frame = slices.Insert(f, l3+v.head, options...)
			tr.frame[l3] += byte(words)
			be.PutUint16(tr.frame[l3+2:], uint16(len(v.packet)+4*words))
		}
	}},
	{"an extension header added", func(tr *trial, f []byte, v view, l3 int, s *script, _ []trial) {
		if v.ip == 6 {
			kind := []byte{0, 43, 44, 51, 60, 135, 139, 59}[s.below(8)]
			more := s.below(4)
			h := make([]byte, 8+8*more)
			h[0], h[1] = f[l3+6], byte(more)
			if kind == 44 {
				h = []byte{f[l3+6], 0, s.byte(), s.byte(), 0, 0, 0, 1}
			}
			if kind == 51 {
				h[1] = byte(2*(more+1) - 2)
			}
			f[l3+6] = kind
			be.PutUint16(f[l3+4:], uint16(len(v.packet)-40+len(h)))
			tr.frame = slices.Insert(f, l3+40, h...)
		}
	}},
	{"addresses of another frame", func(_ *trial, f []byte, v view, l3 int, s *script, others []trial) {
		if o := others[s.below(len(others))].frame; v.ip != 0 {
			w := decode(o)
			if w.ip == v.ip && v.ip == 4 {
				copy(f[l3+12:l3+20], o[w.l3+12:w.l3+20])
			} else if w.ip == v.ip {
				copy(f[l3+8:l3+40], o[w.l3+8:w.l3+40])
			}
		}
	}},
	{"another packet as payload: IPIP, GUE or a quote", func(tr *trial, f []byte, v view, l3 int, s *script, others []trial) {
		if o := decode(others[s.below(len(others))].frame); o.ip != 0 && v.ip != 0 {
			tr.frame = append(f[:l3+v.head:l3+v.head], v.packet[v.head:min(len(v.packet), v.head+8)]...)
			tr.frame = append(tr.frame, o.packet...)
			if s.below(2) == 0 {
				tr.frame[l3+map[int]int{4: 9, 6: 6}[v.ip]] = []byte{protoICMP, protoICMPv6, protoIPIP, protoIPv6}[s.below(4)]
			}
			setLength(tr.frame, l3, v.ip)
		}
	}},
	{"a port", func(_ *trial, f []byte, v view, l3 int, s *script, _ []trial) {
		if v.ip != 0 && len(v.packet) >= v.l4+4 {
			be.PutUint16(f[l3+v.l4+2*s.below(2):], []uint16{80, 443, 53, 8080, 7, 9, 11, 0, 0xffff, 30041, uint16(s.word())}[s.below(11)])
		}
	}},
	{"flags or length of the TCP header", func(_ *trial, f []byte, v view, l3 int, s *script, _ []trial) {
		if v.l4proto == protoTCP && len(v.packet) >= v.l4+14 {
			f[l3+v.l4+12+s.below(2)] = s.byte()
		}
	}},
	{"protocol", func(_ *trial, f []byte, v view, l3 int, s *script, _ []trial) {
		if v.ip != 0 {
			f[l3+map[int]int{4: 9, 6: 6}[v.ip]] = []byte{1, 2, 4, 6, 17, 41, 44, 50, 51, 58, 0, 60, 132, s.byte()}[s.below(14)]
		}
	}},
	{"TTL", func(_ *trial, f []byte, v view, l3 int, s *script, _ []trial) {
		if v.ip != 0 {
			f[l3+map[int]int{4: 8, 6: 7}[v.ip]] = byte(s.below(4))
		}
	}},
	{"longer payload", func(tr *trial, f []byte, v view, l3 int, s *script, _ []trial) {
		if v.ip != 0 {
			n := []int{1, 500, 1400, 3000, 6000}[s.below(5)]
			tr.frame = append(f[:l3+len(v.packet):l3+len(v.packet)], make([]byte, n)...)
			setLength(tr.frame, l3, v.ip)
			if v.l4proto == protoUDP && !v.frag && len(v.packet) >= v.l4+8 {
				be.PutUint16(tr.frame[l3+v.l4+4:], uint16(len(tr.frame)-l3-v.l4))
			}
		}
	}},
	{"for another host", func(_ *trial, f []byte, _ view, _ int, s *script, _ []trial) {
		f[s.below(6)] ^= 1 << s.below(8)
	}},
	{"by another device", func(tr *trial, _ []byte, _ view, _ int, s *script, _ []trial) {
		tr.in = s.below(7)
	}},
	{"another EtherType", func(_ *trial, f []byte, _ view, l3 int, s *script, _ []trial) {
		be.PutUint16(f[max(l3-2, 12):], []uint16{typeIPv4, typeIPv6, 0x0806, typeVLAN, typeQinQ, 100, 0x8847, uint16(s.word())}[s.below(8)])
	}},
	{"TOS, ECN or flow label", func(_ *trial, f []byte, _ view, l3 int, s *script, _ []trial) {
		if len(f) >= l3+4 {
			f[l3+1] = s.byte()
		}
	}},
}

// changed makes one change.
func changed(tr trial, s *script, others []trial) trial {
	v := decode(tr.frame)
	changes[s.below(len(changes))].apply(&tr, tr.frame, v, min(v.l3, len(tr.frame)), s, others)
	return tr
}

// offset chooses one of n offsets from from on, within the frame.
func offset(f []byte, s *script, from, n int) int {
	return min(from, len(f)-1) + s.below(max(1, min(n, len(f)-from)))
}

func be16(b []byte) int { return int(be.Uint16(b)) }

// setLength makes an IP packet end with its frame.
func setLength(f []byte, l3, version int) {
	if version == 6 {
		be.PutUint16(f[l3+4:], uint16(len(f)-l3-40))
	} else {
		be.PutUint16(f[l3+2:], uint16(len(f)-l3))
	}
}
