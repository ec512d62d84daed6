// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// asmBuilder assembles code in which an instruction may have several labels, and some instructions may turn out to be
// unreachable.
type asmBuilder struct {
	ins     asm.Instructions
	pending []string          // labels of the next instruction
	alias   map[string]string // maps a label to the one that its instruction has
}

// label gives the next instruction a label.
func (b *asmBuilder) label(name string) { b.pending = append(b.pending, name) }

// emit appends instructions.
func (b *asmBuilder) emit(ins ...asm.Instruction) {
	for _, i := range ins {
		if len(b.pending) > 0 {
			if i.Symbol() == "" {
				i = i.WithSymbol(b.pending[0])
			}
			for _, name := range b.pending {
				if name != i.Symbol() {
					b.rename(name, i.Symbol())
				}
			}
			b.pending = nil
		}
		b.ins = append(b.ins, i)
	}
}

// add appends the instructions and the labels of another builder.
func (b *asmBuilder) add(other *asmBuilder) {
	for name, to := range other.alias {
		b.rename(name, to)
	}
	b.emit(other.ins...)
	b.pending = append(b.pending, other.pending...)
}

func (b *asmBuilder) rename(name, to string) {
	if b.alias == nil {
		b.alias = make(map[string]string)
	}
	b.alias[name] = to
}

// finish returns the code without unreachable instructions, which the verifier would reject. It returns an error if a label is
// not unique or missing, or if the code runs past its last instruction.
func (b *asmBuilder) finish() (asm.Instructions, error) {
	targets := make(map[string]int)
	for n, i := range b.ins {
		if s := i.Symbol(); s != "" {
			if _, twice := targets[s]; twice {
				return nil, fmt.Errorf("two instructions have the label %s", s)
			}
			targets[s] = n
		}
	}
	for n, i := range b.ins {
		if to, ok := b.alias[i.Reference()]; ok {
			b.ins[n] = i.WithReference(to)
		}
	}
	reached := make([]bool, len(b.ins))
	for open := []int{0}; len(open) > 0; {
		n := open[len(open)-1]
		open = open[:len(open)-1]
		if n >= len(b.ins) {
			return nil, errors.New("the code runs past its last instruction")
		}
		if reached[n] {
			continue
		}
		reached[n] = true
		jump := b.ins[n].OpCode.JumpOp()
		if jump != asm.InvalidJumpOp && jump != asm.Call && jump != asm.Exit {
			target, ok := targets[b.ins[n].Reference()]
			if !ok {
				return nil, fmt.Errorf("a jump to %q: there is no such label", b.ins[n].Reference())
			}
			open = append(open, target)
		}
		if jump != asm.Ja && jump != asm.Exit {
			open = append(open, n+1)
		}
	}
	var ins asm.Instructions
	for n, i := range b.ins {
		if reached[n] {
			ins = append(ins, i)
		}
	}
	return withoutIdleJumps(ins), nil
}

// withoutIdleJumps returns ins without jumps to the next instruction.
func withoutIdleJumps(ins asm.Instructions) asm.Instructions {
	var kept asm.Instructions
	for n, i := range ins {
		idle := i.OpCode.JumpOp() == asm.Ja && i.Symbol() == "" && n+1 < len(ins) && ins[n+1].Symbol() == i.Reference()
		if !idle {
			kept = append(kept, i)
		}
	}
	return kept
}
