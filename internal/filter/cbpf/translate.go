// SPDX-License-Identifier: Apache-2.0

package cbpf

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// Options describes the code around a translated program.
//
// Registers: R6 is A, R7 is X. R8 holds the context (struct xdp_md *) and R9 the start of the packet (ctx->data); the code reads
// them and does not change them. It may change R0 to R5.
type Options struct {
	// Prefix is the beginning of all labels of the code.
	Prefix string
	// Match, NoMatch and Short are the labels at which the code ends: the program returns a number other than 0, it returns
	// 0, or it reads bytes beyond the end of the frame (and so returns 0).
	Match, NoMatch, Short string
	// Next is the one of these labels that follows the code, which then may fall through. It may be empty.
	Next string
	// Stack is the offset from R10 of MemorySize bytes for M[].
	Stack int16
	// Have is how many bytes the first buffer is known to have.
	Have int
	// Far, if it is not nil, gets the far copy, for frames whose first buffer ends too early. It ends with jumps and may be
	// put anywhere after the rest of the code. If Far is nil, the far copy follows the rest.
	Far *asm.Instructions
	// Restart, if it is not empty, is the label of another translation of the program, made with FarOnly. The code jumps there
	// if the first buffer ends too early for a load relative to X. It reads bytes at fixed offsets beyond Have by LoadFunction.
	// So the verifier knows the same of R9 before the code and after it. It would walk through all that follows once more for
	// each length that it may know.
	Restart string
	// LoadSlot is the offset from R10 of 8 bytes on the stack. The code reads bytes by a helper then, and not by LoadFunction: the
	// kernel limits the stack of functions that call each other. 0 stands for LoadFunction.
	LoadSlot int16
	// FarOnly makes only the far copy.
	FarOnly bool
	// Choices has the comparisons with constants that the code does not make, by the numbers of their instructions.
	Choices map[int]Choice
	// ShortAt has the labels that stand for Short at some packet loads, by the numbers of their instructions.
	ShortAt map[int]string
}

// Choice is what stands for a comparison: the code goes on where Yes says, whatever A is.
type Choice struct {
	Yes bool
	// Slot is the offset from R10 of 4 bytes to which A is stored, in host order. It is not stored if Slot is 0.
	Slot int16
}

const (
	// LoadFunction is the global function that reads bytes in any buffer (bpf/filter/load.h).
	LoadFunction = "filter_load"
	// MemorySize is the size of M[] on the stack, in bytes.
	MemorySize = 4 * memWords

	// maxNear is the largest offset that is read directly. The verifier follows packet pointers up to 64 KiB.
	maxNear = 0x7fff
	// maxSlots bounds the number of instructions, so that offsets of jumps, with 16 bits, also reach the code around it.
	maxSlots = 30000
)

const (
	regA    = asm.R6
	regX    = asm.R7
	regCtx  = asm.R8
	regData = asm.R9
	regNear = asm.R5 // regData + X, if state.near is not -1
)

// state is what holds before an instruction on all paths to it. The verifier knows the same.
type state struct {
	seen bool // the instruction is reachable
	have int  // how many bytes the first buffer has from regData on
	near int  // how many bytes it has from regNear on; -1 if regNear is not set
	// maxA and maxX are upper limits of A and X.
	maxA, maxX uint32
}

// meet merges the state of another path.
func (s *state) meet(other state) {
	if !s.seen {
		*s = other
		return
	}
	s.have, s.near = min(s.have, other.have), min(s.near, other.near)
	s.maxA, s.maxX = max(s.maxA, other.maxA), max(s.maxX, other.maxX)
}

// translator makes two copies of a program. The near copy reads the first buffer of the frame directly. If that ends too early,
// execution goes on in the far copy at the same instruction. The far copy reads all bytes by LoadFunction. No path leads back, so
// what the near copy has found out about the first buffer holds until its end.
type translator struct {
	*flow
	code   asm.Instructions
	states []state
	far    []bool // the instructions that the far copy has
	inFar  bool   // the far copy is being made
	symbol string // the label of the next instruction
	// following is the instruction that comes next in this copy, -1 if there is none. Last is set if no other copy follows.
	following int
	last      bool
}

// Translate returns a program as native code. The code has no unreachable instructions.
func (p Program) Translate(o Options) (asm.Instructions, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	t := &translator{flow: newFlow(p, o), states: make([]state, len(p)), far: make([]bool, len(p)),
		following: -1, last: true}
	start := t.to[0]
	if start.label != "" {
		t.jump(start)
		return t.finish()
	}
	t.prologue(t.live[start.at])
	if o.FarOnly {
		t.inFar = true
		t.markFar(start.at)
		t.copy(func(i int) bool { return t.far[i] })
		return t.finish()
	}
	t.states[start.at] = state{seen: true, have: o.Have, near: -1}
	for i := range p {
		if t.states[i].seen {
			t.analyze(i)
		}
	}
	t.markFar(-1)
	second := slices.Contains(t.far, true)
	t.last = o.Far != nil || !second
	t.copy(func(i int) bool { return t.states[i].seen })
	if !second {
		return t.finish()
	}
	near := len(t.code)
	t.inFar, t.last = true, o.Far == nil
	t.copy(func(i int) bool { return t.far[i] })
	code, err := t.finish()
	if err != nil || o.Far == nil {
		return code, err
	}
	*o.Far = append(*o.Far, code[near:]...)
	return code[:near:near], nil
}

// markFar marks instruction i for the far copy unless it is -1, and all instructions that can be reached from marked ones.
func (t *translator) markFar(i int) {
	if i >= 0 {
		t.far[i] = true
	}
	for i := range t.p {
		if !t.far[i] {
			continue
		}
		for _, d := range t.next(i) {
			if d.label == "" {
				t.far[d.at] = true
			}
		}
	}
}

// prologue zeroes the registers and the words of M[] that may be read before they are written.
func (t *translator) prologue(live uint32) {
	if live&liveA != 0 {
		t.emit(asm.Mov.Imm32(regA, 0))
	}
	if live&liveX != 0 {
		t.emit(asm.Mov.Imm32(regX, 0))
	}
	for m := range uint32(memWords) {
		if live&(liveM<<m) != 0 {
			t.emit(asm.StoreImm(asm.R10, t.memory(m), 0, asm.Word))
		}
	}
}

// copy makes a copy of the program, of the instructions for which has returns true.
func (t *translator) copy(has func(int) bool) {
	var stops []int
	for i := range t.p {
		if t.to[i] == (dest{at: i}) && has(i) {
			stops = append(stops, i)
		}
	}
	for n, i := range stops {
		t.following = -1
		if n+1 < len(stops) {
			t.following = stops[n+1]
		}
		t.symbol = t.label(dest{at: i}, t.inFar)
		t.instruction(i)
	}
}

// finish returns the code without labels that no instruction refers to. It returns an error if the code is too large.
func (t *translator) finish() (asm.Instructions, error) {
	if t.code.Size() > maxSlots*asm.InstructionSize {
		return nil, fmt.Errorf("the program is too large: %d native instructions, at most %d are possible",
			t.code.Size()/asm.InstructionSize, maxSlots)
	}
	used := map[string]bool{}
	for _, ins := range t.code {
		used[ins.Reference()] = true
	}
	for i, ins := range t.code {
		if ins.Symbol() != "" && !used[ins.Symbol()] {
			t.code[i] = ins.WithSymbol("")
		}
	}
	return t.code, nil
}
