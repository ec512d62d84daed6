// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// asmBuilder puts code together in which a place may have several labels, and parts may turn out to be reached by
// nothing.
type asmBuilder struct {
	ins     asm.Instructions
	pending []string          // labels of the next instruction
	alias   map[string]string // labels that mean the place of another
}

func (b *asmBuilder) label(name string) { b.pending = append(b.pending, name) }

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

// add puts what another builder has behind the rest.
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

// finish returns the code without what is never reached, which the verifier would refuse.
func (b *asmBuilder) finish() (asm.Instructions, error) {
	places := make(map[string]int)
	for n, i := range b.ins {
		if s := i.Symbol(); s != "" {
			if _, twice := places[s]; twice {
				return nil, fmt.Errorf("two places are called %s", s)
			}
			places[s] = n
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
			return nil, fmt.Errorf("the code goes on behind its end")
		}
		if reached[n] {
			continue
		}
		reached[n] = true
		jump := b.ins[n].OpCode.JumpOp()
		if jump != asm.InvalidJumpOp && jump != asm.Call && jump != asm.Exit {
			to, ok := places[b.ins[n].Reference()]
			if !ok {
				return nil, fmt.Errorf("a jump to %q, which is nowhere", b.ins[n].Reference())
			}
			open = append(open, to)
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

// withoutIdleJumps leaves out jumps to what follows them.
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
