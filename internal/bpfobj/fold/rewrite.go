// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"github.com/cilium/ebpf/asm"
)

// fold makes one round of changes, and tells whether there were any.
func (c *code) fold(sections map[string][]byte) bool {
	changed := c.rewrite(c.propagate(sections), sections)
	return c.prune() || changed
}

// propagate returns what is known before each instruction, nil for those that are never reached.
func (c code) propagate(sections map[string][]byte) []*registers {
	before := make([]*registers, len(c))
	functions := make(map[string]int)
	for i := range c {
		if s := c[i].Symbol(); s != "" {
			functions[s] = i
		}
	}
	var todo []int
	reach := func(i int, r registers) {
		switch {
		case i >= len(c):
			return // the kernel refuses such a program
		case before[i] == nil:
			before[i] = &r
		default:
			met := before[i].meet(r)
			if met == *before[i] {
				return
			}
			before[i] = &met
		}
		todo = append(todo, i)
	}
	reach(0, registers{})
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		ins, r := &c[i], *before[i]
		if ins.IsFunctionReference() {
			if at, ok := functions[ins.Reference()]; ok {
				reach(at, registers{})
			}
		}
		if taken, decided := r.decides(ins); decided {
			if taken {
				reach(ins.to, r)
			} else {
				reach(i+1, r)
			}
			continue
		}
		after := r.after(ins, sections)
		for _, next := range c.next(i) {
			reach(next, after)
		}
	}
	return before
}

// rewrite takes out what is never reached and jumps that are decided, and puts constants into instructions.
func (c *code) rewrite(before []*registers, sections map[string][]byte) (changed bool) {
	gone := make([]bool, len(*c))
	for i := range *c {
		ins := &(*c)[i]
		switch r := before[i]; {
		case r == nil:
			gone[i] = true
		case ins.relocated:
		case ins.jumps():
			taken, decided := r.decides(ins)
			switch {
			case decided && !taken && !ins.stays:
				gone[i] = true
			case decided:
				if !taken {
					ins.to = i + 1
				}
				ins.OpCode, ins.Dst, ins.Src, ins.Constant = asm.OpCode(asm.JumpClass).SetJumpOp(asm.Ja), 0, 0, 0
				changed = true
			case ins.always():
				// Only what is never reached lies between.
				gone[i] = !ins.stays && ins.to > i && !reached(before[i+1:ins.to])
			case ins.OpCode.Class() == asm.Jump32Class:
				changed = r.immediate(ins, anything) || changed
			default:
				changed = r.immediate(ins, extended) || changed
			}
		case ins.OpCode.Class().IsALU(), ins.OpCode.Class() == asm.LdXClass:
			changed = r.constants(ins, sections) || changed
		case ins.OpCode.Class() == asm.StXClass && ins.OpCode.Mode() == asm.MemMode:
			if from := r[ins.Src]; from.kind == constant && (extended(from.n) || ins.OpCode.Size() != asm.DWord) {
				size := ins.OpCode.Size()
				ins.OpCode = asm.OpCode(asm.StClass).SetMode(asm.MemMode).SetSize(size)
				ins.Src, ins.Constant = 0, int64(int32(from.n))
				changed = true
			}
		}
		changed = changed || gone[i]
	}
	*c = c.without(gone)
	return changed
}

func reached(before []*registers) bool {
	for _, r := range before {
		if r != nil {
			return true
		}
	}
	return false
}

// immediate puts a constant into the place of the second operand, if its value is one that fits.
func (r *registers) immediate(ins *instruction, fits func(uint64) bool) bool {
	if ins.OpCode.Source() != asm.RegSource {
		return false
	}
	b := r[ins.Src]
	if b.kind != constant || !fits(b.n) {
		return false
	}
	ins.OpCode = ins.OpCode.SetSource(asm.ImmSource)
	ins.Src, ins.Constant = 0, int64(int32(b.n))
	return true
}

func anything(uint64) bool { return true }

// move makes an instruction one that moves a constant to its register, and tells whether that is a change.
func (i *instruction) move(n uint64) bool {
	was := i.Instruction
	switch {
	case extended(n):
		i.OpCode, i.Constant = asm.Mov.Op(asm.ImmSource), int64(n)
	case narrow(n):
		i.OpCode, i.Constant = asm.Mov.Op32(asm.ImmSource), int64(int32(n))
	case i.OpCode.Class() == asm.LdXClass:
		i.OpCode, i.Constant = asm.LoadImmOp(asm.DWord), int64(n)
	default:
		return false // two instructions for one
	}
	i.Src, i.Offset = 0, 0
	return i.OpCode != was.OpCode || i.Constant != was.Constant
}

// constants makes an instruction whose result is known a move, and else puts a known second operand into it.
func (r *registers) constants(ins *instruction, sections map[string][]byte) bool {
	var result value
	if ins.OpCode.Class() == asm.LdXClass {
		result = r.load(ins, sections)
	} else {
		result = r.compute(ins)
	}
	if result.kind == constant {
		return ins.move(result.n)
	}
	if !ins.OpCode.Class().IsALU() {
		return false
	}
	switch ins.OpCode.ALUOp() {
	case asm.Add, asm.Sub, asm.Mul, asm.Or, asm.And, asm.Xor:
		if ins.OpCode.Class() == asm.ALUClass {
			return r.immediate(ins, anything)
		}
		return r.immediate(ins, extended)
	case asm.LSh, asm.RSh, asm.ArSh:
		width := uint64(64)
		if ins.OpCode.Class() == asm.ALUClass {
			width = 32
		}
		return r.immediate(ins, func(n uint64) bool { return n < width })
	}
	return false
}
