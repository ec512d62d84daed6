// SPDX-License-Identifier: Apache-2.0

package cbpf

import (
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// ctxDataEnd is the offset of data_end in struct xdp_md.
const ctxDataEnd = 4

var aluOps = map[uint16]asm.ALUOp{
	aluADD: asm.Add, aluSUB: asm.Sub, aluMUL: asm.Mul, aluDIV: asm.Div, aluOR: asm.Or, aluAND: asm.And,
	aluLSH: asm.LSh, aluRSH: asm.RSh, aluMOD: asm.Mod, aluXOR: asm.Xor,
}

var jumpOps = map[uint16]asm.JumpOp{
	jmpJEQ: asm.JEq, jmpJGT: asm.JGT, jmpJGE: asm.JGE, jmpJSET: asm.JSet,
}

// inverse maps a jump to the one with the opposite condition. JSet has none.
var inverse = map[asm.JumpOp]asm.JumpOp{asm.JEq: asm.JNE, asm.JGT: asm.JLE, asm.JGE: asm.JLT}

// emit appends instructions. The first one gets t.symbol as its label.
func (t *translator) emit(insns ...asm.Instruction) {
	if t.symbol != "" {
		insns[0] = insns[0].WithSymbol(t.symbol)
		t.symbol = ""
	}
	t.code = append(t.code, insns...)
}

// label returns the label of d. The near and the far copy have labels of their own.
func (t *translator) label(d dest, far bool) string {
	switch {
	case d.label != "":
		return d.label
	case far:
		return fmt.Sprintf("%s_far%d", t.o.Prefix, d.at)
	}
	return fmt.Sprintf("%s_%d", t.o.Prefix, d.at)
}

// fallsTo tells whether d follows the code so far, so that no jump is needed.
func (t *translator) fallsTo(d dest) bool {
	if d.label == "" {
		return d.at == t.following
	}
	return t.following < 0 && t.last && d.label == t.o.Next
}

// jump goes on at d.
func (t *translator) jump(d dest) {
	if !t.fallsTo(d) {
		t.emit(asm.Ja.Label(t.label(d, t.inFar)))
	}
}

// memory returns the offset of M[m] from R10.
func (t *translator) memory(m uint32) int16 { return t.o.Stack + int16(4*m) }

// instruction translates one classic instruction.
func (t *translator) instruction(i int) {
	ins := t.p[i]
	switch class(ins) {
	case classLD, classLDX:
		if !t.load(i) {
			return
		}
	case classST:
		t.emit(asm.StoreMem(asm.R10, t.memory(ins.K), regA, asm.Word))
	case classSTX:
		t.emit(asm.StoreMem(asm.R10, t.memory(ins.K), regX, asm.Word))
	case classALU:
		t.alu(i)
	case classJMP:
		t.branchOn(i)
		return
	case classRET:
		t.test(asm.JNE, asm.JEq, dest{label: t.o.Match}, dest{label: t.o.NoMatch},
			func(op asm.JumpOp, label string) asm.Instruction { return op.Imm32(regA, 0, label) })
		return
	case classMISC: // a move of 64 bits keeps what the verifier knows about the value
		if ins.Op == opTAX {
			t.emit(asm.Mov.Reg(regX, regA))
		} else {
			t.emit(asm.Mov.Reg(regA, regX))
		}
	}
	t.jump(t.to[i+1])
}

// alu translates an ALU instruction, in 32 bits. A shift by more than 31 bits results in 0. A division by 0 ends the program
// without a match.
func (t *translator) alu(i int) {
	ins := t.p[i]
	op := aluOp(ins)
	switch {
	case op == aluNEG:
		t.emit(asm.Instruction{OpCode: asm.Neg.Op32(asm.ImmSource), Dst: regA})
	case !withX(ins):
		t.emit(aluOps[op].Imm32(regA, t.order[i].constant(ins)))
	case divides(ins):
		t.emit(asm.JEq.Imm32(regX, 0, t.o.NoMatch), aluOps[op].Reg32(regA, regX))
	case op == aluLSH || op == aluRSH:
		label := t.label(dest{at: i}, t.inFar) + "_shift"
		t.emit(asm.JLT.Imm32(regX, 32, label), asm.Mov.Imm32(regA, 0),
			aluOps[op].Reg32(regA, regX).WithSymbol(label))
	default:
		t.emit(aluOps[op].Reg32(regA, regX))
	}
}

// branchOn translates a conditional jump.
func (t *translator) branchOn(i int) {
	ins := t.p[i]
	op := jumpOps[aluOp(ins)]
	yes, no := t.branch(i)
	if t.stores(i) {
		t.emit(asm.StoreMem(asm.R10, t.o.Choices[i].Slot, regA, asm.Word))
		t.jump(yes)
		return
	}
	t.test(op, inverse[op], yes, no, func(op asm.JumpOp, label string) asm.Instruction {
		if withX(ins) {
			return op.Reg32(regA, regX, label)
		}
		return op.Imm32(regA, t.order[i].constant(ins), label)
	})
}

// test jumps to yes if the condition of op holds, else to no. One instruction is enough if one of the two follows. Other is the
// inverse of op, 0 if it has none. JumpTo returns a jump to a label.
func (t *translator) test(op, other asm.JumpOp, yes, no dest, jumpTo func(op asm.JumpOp, label string) asm.Instruction) {
	if t.fallsTo(yes) && other != 0 {
		op, yes, no = other, no, yes
	}
	t.emit(jumpTo(op, t.label(yes, t.inFar)))
	t.jump(no)
}

// load translates a load. It returns false if the code after it is unreachable.
func (t *translator) load(i int) bool {
	ins := t.p[i]
	dst := regA
	if class(ins) == classLDX {
		dst = regX
	}
	switch {
	case isPacketLoad(ins) && t.inFar:
		t.loadFar(i)
	case isPacketLoad(ins):
		return t.loadNear(i)
	case mode(ins) == modeIMM:
		t.emit(asm.Mov.Imm32(dst, int32(ins.K)))
	case mode(ins) == modeMEM:
		t.emit(asm.LoadMem(dst, asm.R10, t.memory(ins.K), asm.Word))
	default: // the length of the frame
		t.emit(asm.Mov.Reg(asm.R1, regCtx), asm.FnXdpGetBuffLen.Call(), asm.Mov.Reg32(dst, asm.R0))
	}
	return true
}

// loadNear translates a packet load that reads the first buffer. It returns false if the code after it is unreachable.
func (t *translator) loadNear(i int) bool {
	ins := t.p[i]
	a, _ := t.access(i, t.states[i])
	far := t.label(dest{at: i}, true)
	if t.o.Restart != "" {
		far = t.o.Restart
	}
	if a.call {
		t.loadFar(i)
		return true
	}
	if a.never {
		t.emit(asm.Ja.Label(far))
		return false
	}
	base := regData
	if mode(ins) == modeIND {
		base = regNear
	}
	if a.limit {
		t.emit(asm.JGT.Imm(regX, maxNear, far))
	}
	if a.base {
		t.emit(asm.Mov.Reg(regNear, regData), asm.Add.Reg(regNear, regX))
	}
	if a.need > 0 {
		t.emit(asm.Mov.Reg(asm.R1, base), asm.Add.Imm(asm.R1, int32(a.need)),
			asm.LoadMem(asm.R2, regCtx, ctxDataEnd, asm.Word), asm.JGT.Reg(asm.R1, asm.R2, far))
	}
	off := int16(ins.K)
	switch {
	case ins.Op == opMSH:
		t.emit(asm.LoadMem(regX, base, off, asm.Byte))
		t.headerLength()
	case size(ins) == 1:
		t.emit(asm.LoadMem(regA, base, off, asm.Byte))
	default:
		t.emit(asm.LoadMem(regA, base, off, asmSize(size(ins))))
		if !t.raw[i] {
			t.emit(asm.HostTo(asm.BE, regA, asmSize(size(ins))))
		}
	}
	return true
}

// loadFar translates a packet load that calls LoadFunction, which reads all buffers.
func (t *translator) loadFar(i int) {
	ins := t.p[i]
	if mode(ins) == modeIND {
		t.emit(asm.Mov.Reg(asm.R2, regX))
		// The verifier may not know that the upper half of X is 0.
		t.emit(asm.Mov.Reg32(asm.R2, asm.R2))
		if ins.K > 0 {
			t.emit(asm.Add.Imm(asm.R2, int32(ins.K)))
		}
		t.emit(asm.JGT.Imm(asm.R2, maxOffset, t.short(i)))
	} else {
		t.emit(asm.Mov.Imm32(asm.R2, int32(ins.K)))
	}
	if t.o.LoadSlot != 0 {
		t.loadInline(size(ins), t.short(i))
	} else {
		t.emit(asm.Mov.Imm32(asm.R3, int32(size(ins))), asm.Mov.Reg(asm.R1, regCtx), asm.Call.Label(LoadFunction),
			asm.Mov.Reg(asm.R1, asm.R0), asm.RSh.Imm(asm.R1, 32), asm.JNE.Imm(asm.R1, 0, t.short(i)))
	}
	if ins.Op == opMSH {
		t.emit(asm.Mov.Reg32(regX, asm.R0))
		t.headerLength()
		return
	}
	t.emit(asm.Mov.Reg32(regA, asm.R0))
	if t.raw[i] {
		t.emit(asm.HostTo(asm.BE, regA, asmSize(size(ins))))
	}
}

// loadInline does what LoadFunction does, without a stack frame of its own.
func (t *translator) loadInline(bytes uint32, short string) {
	slot := t.o.LoadSlot
	t.emit(asm.Mov.Reg(asm.R1, regCtx), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, int32(slot)),
		asm.Mov.Imm32(asm.R4, int32(bytes)), asm.FnXdpLoadBytes.Call(), asm.JNE.Imm(asm.R0, 0, short))
	if bytes == 1 {
		t.emit(asm.LoadMem(asm.R0, asm.R10, slot, asm.Byte))
		return
	}
	t.emit(asm.LoadMem(asm.R0, asm.R10, slot, asmSize(bytes)), asm.HostTo(asm.BE, asm.R0, asmSize(bytes)))
}

// headerLength replaces X, the first byte of an IPv4 header, by the length of the header in bytes.
func (t *translator) headerLength() {
	t.emit(asm.And.Imm32(regX, 0xf), asm.LSh.Imm32(regX, 2))
}

func asmSize(bytes uint32) asm.Size {
	if bytes == 2 {
		return asm.Half
	}
	return asm.Word
}
