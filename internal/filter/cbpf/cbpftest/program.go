// SPDX-License-Identifier: Apache-2.0

package cbpftest

import (
	"math/rand/v2"
	"slices"

	"golang.org/x/net/bpf"

	"culvert/internal/filter/cbpf"
)

// Source yields numbers from the bytes of a script and, after its end, random ones.
type Source struct {
	Script []byte
	Rand   *rand.Rand
}

// N returns a number below n, which is at most 65,536.
func (s *Source) N(n int) int {
	v := int(s.Rand.Uint32() & 0xffff)
	if len(s.Script) > 0 {
		v, s.Script = int(s.Script[0]), s.Script[1:]
		if n > 256 && len(s.Script) > 0 {
			v, s.Script = v<<8|int(s.Script[0]), s.Script[1:]
		}
	}
	return v % n
}

// constant returns a constant for an ALU instruction or a comparison.
func (s *Source) constant() uint32 {
	switch s.N(8) {
	case 0:
		return uint32(s.N(256))
	case 1:
		return uint32(s.N(65536))
	case 2:
		return uint32(s.N(65536))<<16 | uint32(s.N(65536))
	case 3:
		return 1 << s.N(32)
	case 4:
		return 1<<s.N(32) - 1
	case 5:
		return []uint32{0x800, 0x806, 0x86dd, 0x8100, 6, 17, 53, 80, 0x1fff, 0xffffff00, 0xc0000200, 0xc0000201}[s.N(12)]
	}
	return uint32(s.N(8))
}

// offset returns an offset for a packet load, mostly within the headers of a frame.
func (s *Source) offset() uint32 {
	switch s.N(24) {
	case 0:
		return uint32(s.N(4096))
	case 1:
		return []uint32{0x7ffa, 0x7ffb, 0x7ffc, 0x7ffd, 0x7ffe, 0x7fff, 0x8000, 0xfffe, 0xffff, 0x10000, 0x10001, 0x7fffffff,
			0x80000000, 0xffdfffff}[s.N(14)]
	case 2, 3, 4:
		return uint32(s.N(100))
	case 5, 6, 7, 8:
		return []uint32{0, 6, 12, 14, 16, 20, 23, 26, 30, 34, 36, 54, 56}[s.N(13)]
	}
	return uint32(s.N(50))
}

// opcodes are those with no operand but a constant.
var opcodes = []uint16{
	0x00, 0x01, 0x80, 0x81, 0x60, 0x61, 0x02, 0x03, 0x07, 0x87, // ld, ldx, st, stx, tax, txa
	0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x94, 0x9c,
	0xa4, 0xac,
}

var (
	packetLoads = []uint16{0x20, 0x28, 0x30, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0xb1}
	branches    = []uint16{0x15, 0x15, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x45, 0x4d}
	masks       = []uint16{0x54, 0x54, 0x44, 0xa4}
)

// Program returns a program with at most most instructions, which passes Check.
func Program(s *Source, most int) cbpf.Program {
	n := 2 + s.N(most-1)
	p := make(cbpf.Program, n)
	for i := range p {
		p[i] = instruction(s, n-i-1)
	}
	return p
}

// instruction returns an instruction that left others follow.
func instruction(s *Source, left int) bpf.RawInstruction {
	jump := func() uint8 { return uint8(s.N(min(left, 1+s.N(6), 256))) }
	kind := s.N(32)
	switch {
	case left == 0 || kind == 0:
		return bpf.RawInstruction{Op: []uint16{0x06, 0x06, 0x16}[s.N(3)], K: []uint32{0, 1, 262144}[s.N(3)]}
	case kind < 10:
		return bpf.RawInstruction{Op: packetLoads[s.N(len(packetLoads))], K: s.offset()}
	case kind < 18:
		return bpf.RawInstruction{Op: branches[s.N(len(branches))], Jt: jump(), Jf: jump(), K: s.constant()}
	case kind == 18:
		return bpf.RawInstruction{Op: 0x05, K: uint32(jump())}
	case kind < 22:
		return bpf.RawInstruction{Op: masks[s.N(len(masks))], K: s.constant()}
	}
	ins := bpf.RawInstruction{Op: opcodes[s.N(len(opcodes))], K: s.constant()}
	switch ins.Op {
	case 0x60, 0x61, 0x02, 0x03:
		ins.K %= 16
	case 0x64, 0x74:
		ins.K %= 32
	case 0x34, 0x94:
		ins.K = max(ins.K, 1)
	}
	return ins
}

// WithZeroes returns p with instructions in front that zero M[]. libpcap's interpreter does not initialize it.
func WithZeroes(p cbpf.Program) cbpf.Program {
	zeroes := cbpf.Program{{Op: 0x00}}
	for m := range uint32(16) {
		zeroes = append(zeroes, bpf.RawInstruction{Op: 0x02, K: m})
	}
	return slices.Concat(zeroes, p)
}
