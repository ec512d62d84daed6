// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// code is a program and the functions that it calls, with the targets of jumps as indexes, so that instructions can be taken out.
type code []instruction

type instruction struct {
	asm.Instruction
	// to is the index of the instruction that it may jump to, -1 if it is no jump.
	to int
	// stays: the instruction is the first of a function, by which calls and the kernel's types of the function are found.
	stays bool
	// relocated: the instruction is changed once more when it is loaded.
	relocated bool
}

// decode resolves the targets of jumps, which are distances or labels.
func decode(ins asm.Instructions) (code, error) {
	at := make(map[asm.RawInstructionOffset]int, len(ins))
	labels, functions := make(map[string]int), make(map[string]bool)
	for i, offset := 0, asm.RawInstructionOffset(0); i < len(ins); i++ {
		at[offset] = i
		offset += ins[i].Width()
		if s := ins[i].Symbol(); s != "" {
			labels[s] = i
		}
		if ins[i].IsFunctionReference() {
			functions[ins[i].Reference()] = true
		}
	}
	c := make(code, len(ins))
	offset := asm.RawInstructionOffset(0)
	for i := range ins {
		c[i] = instruction{
			Instruction: ins[i], to: -1, stays: i == 0 || functions[ins[i].Symbol()], relocated: btf.CORERelocationMetadata(&ins[i]) != nil,
		}
		if !c[i].stays && ins[i].Symbol() != "" {
			c[i].Instruction = c[i].WithSymbol("")
		}
		offset += ins[i].Width()
		if !c[i].jumps() {
			continue
		}
		var ok bool
		if label := ins[i].Reference(); label != "" {
			c[i].Instruction = c[i].WithReference("")
			c[i].to, ok = labels[label]
		} else {
			c[i].to, ok = at[asm.RawInstructionOffset(int64(offset)+c[i].distance())]
		}
		if !ok {
			return nil, fmt.Errorf("instruction %d (%v) jumps into nothing", i, ins[i])
		}
	}
	return c, nil
}

// encode writes the distances of jumps.
func (c code) encode() (asm.Instructions, error) {
	offsets := make([]asm.RawInstructionOffset, len(c))
	offset := asm.RawInstructionOffset(0)
	for i := range c {
		offsets[i] = offset
		offset += c[i].Width()
	}
	ins := make(asm.Instructions, len(c))
	for i := range c {
		ins[i] = c[i].Instruction
		if c[i].to < 0 {
			continue
		}
		distance := int64(offsets[c[i].to]) - int64(offsets[i]) - int64(c[i].Width())
		switch {
		case c[i].long():
			ins[i].Constant = distance
		case distance < math.MinInt16 || distance > math.MaxInt16:
			return nil, errors.New("a jump is too far")
		default:
			ins[i].Offset = int16(distance)
		}
	}
	return ins, nil
}

// jumps tells whether an instruction jumps within its function.
func (i *instruction) jumps() bool {
	if !i.OpCode.Class().IsJump() {
		return false
	}
	op := i.OpCode.JumpOp()
	return op != asm.Call && op != asm.Exit
}

// always tells whether an instruction jumps whatever the registers hold.
func (i *instruction) always() bool { return i.jumps() && i.OpCode.JumpOp() == asm.Ja }

// long tells whether the distance of a jump is in the place of the constant.
func (i *instruction) long() bool { return i.always() && i.OpCode.Class() == asm.Jump32Class }

// long64 tells whether an instruction has 64 bits of its own for its register: a constant, or the address of a map, of its value or of a
// function.
func (i *instruction) long64() bool { return i.OpCode == asm.LoadImmOp(asm.DWord) }

func (i *instruction) distance() int64 {
	if i.long() {
		return i.Constant
	}
	return int64(i.Offset)
}

func (i *instruction) ends() bool {
	return i.OpCode.Class().IsJump() && i.OpCode.JumpOp() == asm.Exit
}

func (i *instruction) calls() bool {
	return i.OpCode.Class().IsJump() && i.OpCode.JumpOp() == asm.Call
}

// next returns the instructions that may follow instruction i, but for functions that it calls.
func (c code) next(i int) []int {
	switch {
	case c[i].ends():
		return nil
	case c[i].always():
		return []int{c[i].to}
	case c[i].to >= 0:
		return []int{i + 1, c[i].to}
	}
	return []int{i + 1}
}

// without returns the code without some instructions. A jump to one of them leads to the one behind it.
func (c code) without(gone []bool) code {
	moved := make([]int, len(c))
	kept := make(code, 0, len(c))
	for i := range c {
		moved[i] = len(kept)
		if !gone[i] {
			kept = append(kept, c[i])
		} else if i+1 < len(c) && c[i+1].Source() == nil && c[i].Source() != nil {
			c[i+1].Instruction = c[i+1].WithSource(c[i].Source())
		}
	}
	for i := range kept {
		if kept[i].to >= 0 {
			kept[i].to = moved[kept[i].to]
		}
	}
	return kept
}

// maps returns the names of the maps that the code refers to.
func (c code) maps() map[string]bool {
	names := make(map[string]bool)
	for i := range c {
		if c[i].IsLoadFromMap() && c[i].Reference() != "" {
			names[c[i].Reference()] = true
		}
	}
	return names
}
