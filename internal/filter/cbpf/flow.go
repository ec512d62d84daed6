// SPDX-License-Identifier: Apache-2.0

package cbpf

import "golang.org/x/net/bpf"

// Bits for what an instruction reads or writes: the registers A and X, and from liveM on M[0] to M[15].
const (
	liveA uint32 = 1 << iota
	liveX
	liveM
)

// maxOffset is the largest offset that the kernel's bpf_xdp_load_bytes accepts. No frame has bytes beyond it.
const maxOffset = 0xffff

// dest is the target of a jump: an instruction or, if label is not empty, a label outside the program.
type dest struct {
	at    int
	label string
}

// flow is the control and data flow of a program. Jumps only go forward, so one pass backward over the instructions finds it. All
// slices have an element for each instruction.
type flow struct {
	p Program
	o Options
	// to is the instruction that is executed first from here on. It skips jumps, returns of a constant, and instructions
	// without effect.
	to []dest
	// live has the bits of what may be read, from here on, before it is written.
	live  []uint32
	order []order // of A, before the instruction
	raw   []bool  // the load leaves A in network order
}

func newFlow(p Program, o Options) *flow {
	n := len(p)
	f := &flow{p: p, o: o, to: make([]dest, n), live: make([]uint32, n)}
	for i := n - 1; i >= 0; i-- {
		f.visit(i)
	}
	f.orders()
	return f
}

// visit sets to and live of instruction i. Those of the instructions after it are known.
func (f *flow) visit(i int) {
	ins := f.p[i]
	f.to[i] = dest{at: i}
	switch {
	case class(ins) == classRET && ins.Op&retA == 0:
		f.to[i] = dest{label: f.o.NoMatch}
		if ins.K != 0 {
			f.to[i] = dest{label: f.o.Match}
		}
	case class(ins) == classRET:
		f.live[i] = liveA
	case isPacketLoad(ins) && ins.K > maxOffset:
		f.to[i] = dest{label: f.short(i)}
	case ins.Op == opJA:
		f.skip(i, f.to[i+1+int(ins.K)])
	case isBranch(ins):
		yes, no := f.branch(i)
		if yes == no && !f.stores(i) {
			f.skip(i, yes)
			return
		}
		use, _ := effect(ins)
		f.live[i] = f.liveAt(yes) | f.liveAt(no) | use
	default:
		next := f.to[i+1]
		use, def := effect(ins)
		if def&f.liveAt(next) == 0 && !isPacketLoad(ins) && !divides(ins) {
			f.skip(i, next)
			return
		}
		f.live[i] = f.liveAt(next)&^def | use
	}
}

// skip makes execution that arrives at instruction i go on at d.
func (f *flow) skip(i int, d dest) {
	f.to[i] = d
	f.live[i] = f.liveAt(d)
}

// liveAt returns live of d. Outside the program nothing is read.
func (f *flow) liveAt(d dest) uint32 {
	if d.label != "" {
		return 0
	}
	return f.live[d.at]
}

// branch returns the targets of a conditional jump. They are the same if there is a choice.
func (f *flow) branch(i int) (yes, no dest) {
	yes, no = f.to[i+1+int(f.p[i].Jt)], f.to[i+1+int(f.p[i].Jf)]
	if c, ok := f.o.Choices[i]; ok && c.Yes {
		return yes, yes
	} else if ok {
		return no, no
	}
	return yes, no
}

// stores tells whether A is stored in the place of a comparison.
func (f *flow) stores(i int) bool { return f.o.Choices[i].Slot != 0 }

// short returns the label at which the code ends if a load reads beyond the end of the frame.
func (f *flow) short(i int) string {
	if label, ok := f.o.ShortAt[i]; ok {
		return label
	}
	return f.o.Short
}

// next returns what may follow an instruction that is not skipped.
func (f *flow) next(i int) []dest {
	switch {
	case class(f.p[i]) == classRET:
		return nil
	case isBranch(f.p[i]):
		yes, no := f.branch(i)
		return []dest{yes, no}
	}
	return []dest{f.to[i+1]}
}

// divides tells whether an instruction divides by X. It ends the program if X is 0.
func divides(ins bpf.RawInstruction) bool {
	return class(ins) == classALU && withX(ins) && (aluOp(ins) == aluDIV || aluOp(ins) == aluMOD)
}

// effect returns the bits of what an instruction reads and writes. The instruction is not ja.
func effect(ins bpf.RawInstruction) (use, def uint32) {
	switch class(ins) {
	case classLD, classLDX:
		def = liveA
		if class(ins) == classLDX {
			def = liveX
		}
		switch mode(ins) {
		case modeIND:
			use = liveX
		case modeMEM:
			use = liveM << ins.K
		}
	case classST:
		use, def = liveA, liveM<<ins.K
	case classSTX:
		use, def = liveX, liveM<<ins.K
	case classALU, classJMP:
		use = liveA
		if withX(ins) {
			use |= liveX
		}
		if class(ins) == classALU {
			def = liveA
		}
	case classRET:
		use = liveA
	case classMISC:
		use, def = liveA, liveX
		if ins.Op == opTXA {
			use, def = liveX, liveA
		}
	}
	return use, def
}
