// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/cilium/ebpf/asm"
)

// value is what is known of a register.
type value struct {
	kind kind
	// section is that of an address.
	section string
	// n is a constant, or an address's offset in its section.
	n uint64
}

type kind uint8

const (
	unknown kind = iota
	constant
	address
)

// registers is what is known of r0 to r10 before an instruction.
type registers [11]value

// meet returns what holds of both.
func (r registers) meet(other registers) registers {
	for i := range r {
		if r[i] != other[i] {
			r[i] = value{}
		}
	}
	return r
}

func known(n uint64) value { return value{kind: constant, n: n} }

// after returns what is known behind an instruction that is no jump.
func (r registers) after(ins *instruction, sections map[string][]byte) registers {
	op := ins.OpCode
	switch class := op.Class(); {
	case ins.relocated && !ins.calls():
		if class.IsALU() || class.IsLoad() {
			r[ins.Dst] = value{}
		}
	case ins.calls():
		for i := asm.R0; i <= asm.R5; i++ {
			r[i] = value{}
		}
	case class.IsALU():
		r[ins.Dst] = r.compute(ins)
	case class == asm.LdClass && !ins.long64():
		for i := asm.R0; i <= asm.R5; i++ { // a load of classic BPF calls
			r[i] = value{}
		}
	case class == asm.LdClass:
		r[ins.Dst] = loaded(ins, sections)
	case class == asm.LdXClass:
		r[ins.Dst] = r.load(ins, sections)
	case class == asm.StXClass && op.Mode() == asm.AtomicMode:
		r[ins.Src], r[asm.R0] = value{}, value{}
		if ins.Dst <= asm.R9 {
			r[ins.Dst] = value{} // loads with an order write this one
		}
	}
	return r
}

// loaded returns what a load of 64 bits of the instruction itself leaves.
func loaded(ins *instruction, sections map[string][]byte) value {
	switch {
	case ins.IsLoadFromMap():
		if _, ok := sections[ins.Reference()]; ok && ins.Src == asm.PseudoMapValue {
			return value{kind: address, section: ins.Reference(), n: uint64(ins.Constant) >> 32}
		}
		return value{}
	case ins.Src != asm.R0 || ins.Reference() != "":
		return value{}
	}
	return known(uint64(ins.Constant))
}

// load returns what a load from memory leaves.
func (r registers) load(ins *instruction, sections map[string][]byte) value {
	from := r[ins.Src]
	if from.kind != address || ins.OpCode.Mode() != asm.MemMode {
		return value{}
	}
	data := sections[from.section]
	start := int64(from.n) + int64(ins.Offset)
	size := int64(ins.OpCode.Size().Sizeof())
	if start < 0 || size <= 0 || start+size > int64(len(data)) {
		return value{}
	}
	var word [8]byte
	copy(word[:], data[start:start+size])
	return known(binary.NativeEndian.Uint64(word[:])) // both architectures are little-endian
}

// operand returns the second operand.
func (r registers) operand(ins *instruction) value {
	if ins.OpCode.Source() == asm.ImmSource {
		return known(uint64(ins.Constant))
	}
	return r[ins.Src]
}

// compute returns what an operation leaves in its register.
func (r registers) compute(ins *instruction) value {
	op := ins.OpCode.ALUOp()
	wide := ins.OpCode.Class() == asm.ALU64Class
	if op == asm.Swap || op == asm.Neg {
		return value{}
	}
	a, b := r[ins.Dst], r.operand(ins)
	switch {
	case op == asm.Mov && wide:
		return b
	case op == asm.Mov && b.kind == constant:
		return known(uint64(uint32(b.n)))
	case op == asm.Add && wide && a.kind == address && b.kind == constant:
		a.n += b.n
		return a
	case a.kind != constant || b.kind != constant:
		return value{}
	}
	width := uint64(32)
	if wide {
		width = 64
	}
	x, y := a.n, b.n
	if !wide {
		x, y = uint64(uint32(x)), uint64(uint32(y))
	}
	switch op {
	case asm.Add:
		x += y
	case asm.Sub:
		x -= y
	case asm.Mul:
		x *= y
	case asm.Or:
		x |= y
	case asm.And:
		x &= y
	case asm.Xor:
		x ^= y
	case asm.LSh:
		x <<= y & (width - 1)
	case asm.RSh:
		x >>= y & (width - 1)
	default:
		return value{}
	}
	if !wide {
		x = uint64(uint32(x))
	}
	return known(x)
}

// decides tells whether a jump is decided, and how.
func (r registers) decides(ins *instruction) (taken, decided bool) {
	if ins.relocated || !ins.jumps() || ins.always() {
		return false, false
	}
	a, b := r[ins.Dst], r.operand(ins)
	if a.kind != constant || b.kind != constant {
		return false, false
	}
	x, y := a.n, b.n
	sx, sy := int64(x), int64(y)
	if ins.OpCode.Class() == asm.Jump32Class {
		x, y = uint64(uint32(x)), uint64(uint32(y))
		sx, sy = int64(int32(x)), int64(int32(y))
	}
	switch ins.OpCode.JumpOp() {
	case asm.JEq:
		return x == y, true
	case asm.JNE:
		return x != y, true
	case asm.JGT:
		return x > y, true
	case asm.JGE:
		return x >= y, true
	case asm.JLT:
		return x < y, true
	case asm.JLE:
		return x <= y, true
	case asm.JSet:
		return x&y != 0, true
	case asm.JSGT:
		return sx > sy, true
	case asm.JSGE:
		return sx >= sy, true
	case asm.JSLT:
		return sx < sy, true
	case asm.JSLE:
		return sx <= sy, true
	}
	return false, false
}

// extended tells whether a constant is the 32 bits of an instruction, extended by their sign.
func extended(n uint64) bool { return int64(n) >= math.MinInt32 && int64(n) <= math.MaxInt32 }

// narrow tells whether a constant has 32 bits.
func narrow(n uint64) bool { return bits.Len64(n) <= 32 }
