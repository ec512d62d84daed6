// SPDX-License-Identifier: Apache-2.0

package fold

import "github.com/cilium/ebpf/asm"

// set is a set of registers, r0 in bit 0.
type set uint16

func of(registers ...asm.Register) (s set) {
	for _, r := range registers {
		s |= 1 << r
	}
	return s
}

const (
	arguments set = 0x3e // r1 to r5
	clobbered set = 0x3f // r0 to r5: what a call leaves with anything in it
)

// effect returns which registers an instruction reads and which it writes, whatever they held. An instruction may read more than it does.
func (i *instruction) effect() (reads, writes set) {
	op := i.OpCode
	source := set(0)
	if op.Source() == asm.RegSource {
		source = of(i.Src)
	}
	switch class := op.Class(); {
	case i.calls():
		return arguments, clobbered
	case i.ends():
		return of(asm.R0), 0
	case i.always():
		return 0, 0
	case class.IsJump():
		return of(i.Dst) | source, 0
	case class.IsALU():
		switch op.ALUOp() {
		case asm.Swap, asm.Neg:
			return of(i.Dst), of(i.Dst)
		case asm.Mov, asm.MovSX8, asm.MovSX16, asm.MovSX32:
			return source, of(i.Dst)
		}
		return of(i.Dst) | source, of(i.Dst)
	case i.long64():
		return 0, of(i.Dst)
	case class == asm.LdClass:
		return clobbered | of(asm.R6), 0
	case class == asm.LdXClass:
		return of(i.Src), of(i.Dst)
	case op.Mode() == asm.AtomicMode:
		return of(i.Dst, i.Src, asm.R0), 0
	case class == asm.StXClass:
		return of(i.Dst, i.Src), 0
	}
	return of(i.Dst), 0
}

// computes tells whether an instruction does nothing but write its register. A load from memory may be there for its effect on the cache.
func (i *instruction) computes() bool {
	return !i.stays && !i.relocated && (i.OpCode.Class().IsALU() || i.long64())
}

// prune takes out instructions whose result nobody reads, and tells whether there were any.
func (c *code) prune() bool {
	live := make([]set, len(*c)+1) // before each instruction
	for changed := true; changed; {
		changed = false
		for i := len(*c) - 1; i >= 0; i-- {
			reads, writes := (*c)[i].effect()
			now := reads | c.liveBehind(live, i)&^writes
			if now != live[i] {
				live[i], changed = now, true
			}
		}
	}
	gone, any := make([]bool, len(*c)), false
	for i := range *c {
		if ins := &(*c)[i]; ins.computes() && c.liveBehind(live, i)&of(ins.Dst) == 0 {
			gone[i], any = true, true
		}
	}
	*c = c.without(gone)
	return any
}

func (c code) liveBehind(live []set, i int) (behind set) {
	for _, next := range c.next(i) {
		behind |= live[next]
	}
	return behind
}
