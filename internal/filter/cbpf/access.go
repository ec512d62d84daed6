// SPDX-License-Identifier: Apache-2.0

package cbpf

import (
	"math"

	"golang.org/x/net/bpf"
)

// access is how the first copy of a program reads the packet at an instruction.
type access struct {
	// never: the bytes are too far behind the start to be read directly at all.
	never bool
	// limit: X has to be compared with maxNear first. base: regNear has to be set.
	limit, base bool
	// call: they are read by LoadFunction, in the first copy too.
	call bool
	// need is up to where the buffer has to be compared with its end, from the start or from regNear; 0 for not.
	need int
}

// mayFail tells whether the frame may have to be read by LoadFunction.
func (a access) mayFail() bool { return a.never || a.limit || a.need > 0 }

// steps are up to where the first buffer is compared with its end: to where headers end, and then ever more coarsely.
// So one comparison is good for more loads, and the verifier, which looks again at all rules for each length that it
// may know, finds few of them. stepsX are the same relative to the length of an IPv4 header, behind a VLAN tag, too.
var (
	steps = []int{14, 34, 42, 54, 58, 62, 66, 74, 86, 98, 128, 192, 256, 384, 512, 768, 1024, 1500, 2048, 4096, 8192, 16384,
		maxNear}
	stepsX = []int{22, 26, 34, 38}
)

// roundUp returns the first step that is not below end, or end.
func roundUp(end int, steps []int) int {
	for _, s := range steps {
		if end <= s {
			return s
		}
	}
	return end
}

// access finds what has to be looked at before a packet load, and what is known behind it.
func (t *translator) access(i int, s state) (a access, after state) {
	ins := t.p[i]
	end := int(ins.K + size(ins))
	if t.o.Restart != "" && mode(ins) != modeIND && end > s.have {
		s.near = -1 // a call keeps no registers
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

// analyse finds what holds behind instruction i, and where the second copy is entered.
func (t *translator) analyse(i int) {
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
		s.maxA = math.MaxUint32 // the verifier does not know that a byte is no more
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

// limits finds the upper limits of A and X behind an instruction. The verifier must find them, too: it knows nothing
// about what has changed its byte order, or has been in M[].
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
