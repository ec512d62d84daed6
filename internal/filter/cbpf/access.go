// SPDX-License-Identifier: Apache-2.0

package cbpf

import (
	"math"

	"golang.org/x/net/bpf"
)

// access says how the near copy of a program reads the packet at an instruction.
type access struct {
	never bool // the offset is too large for a direct read
	limit bool // X has to be compared with maxNear first
	base  bool // regNear has to be set
	call  bool // LoadFunction reads the bytes, in the near copy too
	// need is how many bytes the first buffer has to have, from regData or regNear on. 0 means that no comparison is needed.
	need int
}

// mayFail tells whether the near copy may have to give way to the far copy, which reads by LoadFunction.
func (a access) mayFail() bool { return a.never || a.limit || a.need > 0 }

// steps are the lengths with which the first buffer is compared: the ends of headers first, then ever larger steps. So one
// comparison serves several loads. It also leaves the verifier few lengths that it may know, for each of which it would walk
// through all rules that follow. stepsX are the lengths relative to X, the length of an IPv4 header, with and without a VLAN tag.
var (
	steps = []int{14, 34, 42, 54, 58, 62, 66, 74, 86, 98, 128, 192, 256, 384, 512, 768, 1024, 1500, 2048, 4096, 8192, 16384,
		maxNear}
	stepsX = []int{22, 26, 34, 38}
)

// roundUp returns the first step that is not below end, or end if there is none.
func roundUp(end int, steps []int) int {
	for _, s := range steps {
		if end <= s {
			return s
		}
	}
	return end
}

// access returns what has to be checked before a packet load in state s, and the state after it.
func (t *translator) access(i int, s state) (a access, after state) {
	ins := t.p[i]
	end := int(ins.K + size(ins))
	if t.o.Restart != "" && mode(ins) != modeIND && end > s.have {
		s.near = -1 // a call clobbers regNear
		return access{call: true}, s
	}
	if end > maxNear {
		return access{never: true}, s
	}
	if mode(ins) != modeIND {
		if end > s.have {
			a.need = roundUp(end, steps)
			s.have = a.need
		}
		return a, s
	}
	if s.near < 0 {
		a.base, s.near = true, 0
		if s.maxX > maxNear {
			a.limit, s.maxX = true, maxNear
		}
	}
	if end > s.near {
		a.need = roundUp(end, stepsX)
		s.near = a.need
	}
	return a, s
}

// analyze adds the state after instruction i to the states of the instructions that may follow it. It marks the instruction for
// the far copy if the near copy may give way there.
func (t *translator) analyze(i int) {
	ins, s := t.p[i], t.states[i]
	var a access
	if isPacketLoad(ins) {
		a, s = t.access(i, s)
		t.far[i] = t.far[i] || a.mayFail() && t.o.Restart == ""
		if a.never {
			return
		}
	}
	s.limits(ins)
	if a.call && class(ins) == classLD {
		s.maxA = math.MaxUint32 // the verifier does not know that LoadFunction returns no more than a byte
	}
	if _, def := effect(ins); def == liveX || mode(ins) == modeLEN && class(ins) <= classLDX {
		s.near = -1
	}
	for _, d := range t.next(i) {
		if d.label == "" {
			t.states[d.at].meet(s)
		}
	}
}

// limits updates the upper limits of A and X for an instruction. It is never lower than what the verifier finds. The verifier
// knows no limit of a value that has changed its byte order, or comes from M[].
func (s *state) limits(ins bpf.RawInstruction) {
	switch class(ins) {
	case classLD:
		s.maxA = math.MaxUint32
		if mode(ins) == modeIMM {
			s.maxA = ins.K
		} else if isPacketLoad(ins) && size(ins) == 1 {
			s.maxA = math.MaxUint8
		}
	case classLDX:
		s.maxX = math.MaxUint32
		if mode(ins) == modeIMM {
			s.maxX = ins.K
		} else if ins.Op == opMSH {
			s.maxX = 4 * 0xf
		}
	case classMISC:
		if ins.Op == opTAX {
			s.maxX = s.maxA
		} else {
			s.maxA = s.maxX
		}
	case classALU:
		s.maxA = limitALU(ins, s.maxA)
	}
}

// limitALU returns the upper limit of A after an ALU instruction, given the one before it.
func limitALU(ins bpf.RawInstruction, a uint32) uint32 {
	if !withX(ins) {
		switch op := aluOp(ins); {
		case op == aluAND:
			return min(a, ins.K)
		case op == aluRSH:
			return a >> ins.K
		case op == aluLSH && a <= maxNear && ins.K <= 8:
			return a << ins.K
		case op == aluADD && a <= maxNear && ins.K <= maxNear:
			return a + ins.K
		}
	}
	return math.MaxUint32
}
