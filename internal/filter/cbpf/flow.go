// SPDX-License-Identifier: Apache-2.0

package cbpf

import "golang.org/x/net/bpf"

// What an instruction reads and writes: the registers A and X, and M[0] to M[15] from bit liveM on.
const (
	liveA uint32 = 1 << iota
	liveX
	liveM
)

// maxOffset is the last offset that the kernel's bpf_xdp_load_bytes takes. Nothing is beyond it.
const maxOffset = 0xffff

// dest is where a jump leads: to an instruction or, if label is set, out of the program.
type dest struct {
	at    int
	label string
}

// flow is what is known about a program, before any of it is translated. Jumps only go forward, so one pass over
// the instructions, backwards, finds it.
type flow struct {
	p Program
	o Options
	// to is where execution that arrives at an instruction really goes on: jumps, returns of a constant, and
	// instructions without effect are no stops on the way.
	to []dest
	// live is what may be read, from an instruction on, before it is written.
	live []uint32
	// order is how A is held at an instruction, raw whether a load leaves A in network order.
	order []order
	raw   []bool
}

func newFlow(p Program, o Options) *flow {
	n := len(p)
	f := &flow{p: p, o: o, to: make([]dest, n), live: make([]uint32, n)}
	for i := n - 1; i >= 0; i-- {
		f.look(i)
	}
	f.orders()
	return f
}

// look finds everything about instruction i from those behind it.
func (f *flow) look(i int) {
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
		f.to[i] = dest{label: f.o.Short}
	case ins.Op == opJA:
		f.pass(i, f.to[i+1+int(ins.K)])
	case isBranch(ins):
		yes, no := f.branch(i)
		if yes == no {
			f.pass(i, yes)
			return
		}
		use, _ := effect(ins)
		f.live[i] = f.liveAt(yes) | f.liveAt(no) | use
	default:
		next := f.to[i+1]
		use, def := effect(ins)
		if def&f.liveAt(next) == 0 && !isPacketLoad(ins) && !divides(ins) {
			f.pass(i, next)
			return
		}
		f.live[i] = f.liveAt(next)&^def | use
	}
}

// pass makes instruction i no stop on the way to d.
func (f *flow) pass(i int, d dest) {
	f.to[i] = d
	f.live[i] = f.liveAt(d)
}

func (f *flow) liveAt(d dest) uint32 {
	if d.label != "" {
		return 0
	}
	return f.live[d.at]
}

// branch returns where a conditional jump leads.
func (f *flow) branch(i int) (yes, no dest) {
	return f.to[i+1+int(f.p[i].Jt)], f.to[i+1+int(f.p[i].Jf)]
}

// next returns where an instruction leads that is a stop.
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

// divides tells whether an instruction may end the program, for X is 0.
func divides(ins bpf.RawInstruction) bool {
	return class(ins) == classALU && withX(ins) && (aluOp(ins) == aluDIV || aluOp(ins) == aluMOD)
}

// effect returns what an instruction other than ja reads and writes.
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
