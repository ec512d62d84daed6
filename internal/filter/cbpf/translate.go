// SPDX-License-Identifier: Apache-2.0

package cbpf

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// Options says what the native code is put into.
//
// Registers: R6 is A, R7 is X. R8 is the context (struct xdp_md *) and R9 the start of the packet (ctx->data): they
// are read and left as they are. R0 to R5 are free for the code.
type Options struct {
	// Prefix is what all labels of the code start with.
	Prefix string
	// Match, NoMatch and Short are the labels where it ends: the program returns something else than 0, it returns
	// 0, it asks for bytes beyond the end of the frame (and so returns 0).
	Match, NoMatch, Short string
	// Next is the label, one of those, right behind the code, where it may fall through; empty if there is none.
	Next string
	// Stack is where 64 bytes for M[] are, from R10.
	Stack int16
	// Have is how many bytes from R9 on have been compared with the end of the first buffer already.
	Have int
	// Far, if set, gets the code for frames whose first buffer ends too early, to be put anywhere behind the rest.
	// It ends by jumps. Without Far that code follows the rest.
	Far *asm.Instructions
	// Restart, if set, is a label to jump to where the first buffer ends too early for a load relative to X: the
	// caller has the program there once more, made with FarOnly. Bytes at fixed places behind Have are then read by
	// LoadFunction. So what the verifier knows of R9 is the same behind the code as in front of it: it would look
	// once more at all that follows for each length that it may know.
	Restart string
	// FarOnly makes code that reads all by LoadFunction.
	FarOnly bool
}

const (
	// LoadFunction is the global function that reads what may not be in the first buffer (bpf/filter/load.h).
	LoadFunction = "filter_load"
	// MemorySize is how many bytes M[] takes on the stack.
	MemorySize = 4 * memWords

	// maxNear is up to where the first buffer is read directly. The verifier follows packet pointers up to 64 KiB.
	maxNear = 0x7fff
	// maxSlots keeps jumps, of 16 bits, within the code, and some way beyond it.
	maxSlots = 30000
)

const (
	regA    = asm.R6
	regX    = asm.R7
	regCtx  = asm.R8
	regData = asm.R9
	regNear = asm.R5 // packet + X, where state.near is not -1
)

// state is what holds at an instruction on all ways to it, as the verifier sees it, too.
type state struct {
	seen bool
	// have is how many bytes from the start are in the first buffer, near how many behind X; -1 without regNear.
	have, near int
	// maxA and maxX are upper limits.
	maxA, maxX uint32
}

func (s *state) meet(other state) {
	if !s.seen {
		*s = other
		return
	}
	s.have, s.near = min(s.have, other.have), min(s.near, other.near)
	s.maxA, s.maxX = max(s.maxA, other.maxA), max(s.maxX, other.maxX)
}

// translator makes two copies of a program. The first reads the first buffer of the frame directly. Where that ends
// too early it goes on in the second, at the same instruction, which reads all by LoadFunction. So no way leads back,
// and what the first has compared with the end of the buffer holds to its end.
type translator struct {
	*flow
	code   asm.Instructions
	states []state
	// far are the instructions that the second copy has.
	far []bool
	// inFar is set while making the second copy.
	inFar bool
	// symbol is for the next instruction.
	symbol string
	// following is the instruction that comes next in this copy, -1 for none. last: no other copy follows.
	following int
	last      bool
}

// Translate makes native code of a program. The code has no instruction that cannot be reached.
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
		t.farFrom(start.at)
		t.copy(func(i int) bool { return t.far[i] })
		return t.finish()
	}
	t.states[start.at] = state{seen: true, have: o.Have, near: -1}
	for i := range p {
		if t.states[i].seen {
			t.analyse(i)
		}
	}
	t.farFrom(-1)
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

// farFrom marks what the second copy has from an instruction on, and from those that it has already.
func (t *translator) farFrom(i int) {
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

// prologue zeroes what may be read before it is written.
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

// copy makes one copy of the instructions that it has.
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

// finish drops what nothing refers to, and a last jump to what comes next.
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
