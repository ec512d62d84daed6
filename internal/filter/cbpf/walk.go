// SPDX-License-Identifier: Apache-2.0

package cbpf

import (
	"fmt"
	"slices"

	"golang.org/x/net/bpf"
)

// walker walks all ways through a program, without a packet: what A, X and M[] hold is an expression of the packet's bytes.
type walker struct {
	p Program
	// param is for each instruction the number of the value that it compares A with, or -1.
	param []int
	steps int // how many more instructions may be walked
}

const (
	// maxSteps bounds the instructions that are walked, and maxExpr the length of an expression.
	maxSteps = 50000
	maxExpr  = 300
)

// machine is what a program has in its registers and its memory.
type machine struct {
	a, x string
	m    [memWords]string
}

// fact is what a comparison has found out.
type fact struct {
	left, op, right string
	holds           bool
}

// place is where a load reads: bytes from first to before end, relative to base. Base is an expression, "" is the start of the frame.
type place struct {
	base       string
	first, end uint64
}

// within tells whether the frame has p if it has q: then a byte behind both is no nearer in p.
func (p place) within(q place) bool { return p.base == q.base && p.first <= q.first && p.end <= q.end }

// way is a way through a program.
type way struct {
	machine
	facts []fact
	loads []place // the frame has them
	// values has for each value the expressions that have to equal it.
	values [][]string
	no     []int // comparisons with a value that do not hold
	// at is the load at which the way ends because the frame does not have cut, -1 for a way to a match.
	at  int
	cut place
}

// loaded returns where a packet load reads.
func (m *machine) loaded(ins bpf.RawInstruction) place {
	if ins.Op == opMSH {
		return place{first: uint64(ins.K), end: uint64(ins.K) + 1}
	}
	p := place{first: uint64(ins.K), end: uint64(ins.K) + uint64(size(ins))}
	if mode(ins) == modeIND {
		p.base = m.x
	}
	return p
}

// apply executes an instruction that is neither a jump nor a return. It returns false if it is none of those that are understood.
func (m *machine) apply(ins bpf.RawInstruction) bool {
	switch class(ins) {
	case classLD, classLDX:
		to := &m.a
		if class(ins) == classLDX {
			to = &m.x
		}
		switch {
		case ins.Op == opMSH:
			*to = fmt.Sprintf("4*[%d]", ins.K)
		case isPacketLoad(ins):
			p := m.loaded(ins)
			*to = fmt.Sprintf("[%s+%d:%d]", p.base, p.first, size(ins))
		case mode(ins) == modeIMM:
			*to = number(ins.K)
		case mode(ins) == modeMEM:
			*to = m.m[ins.K]
		default:
			*to = "len"
		}
	case classST:
		m.m[ins.K] = m.a
	case classSTX:
		m.m[ins.K] = m.x
	case classALU:
		if divides(ins) {
			return false
		}
		m.a = fmt.Sprintf("(%s %d %s)", m.a, aluOp(ins), m.operand(ins))
	case classMISC:
		if ins.Op == opTAX {
			m.x = m.a
		} else {
			m.a = m.x
		}
	}
	return max(len(m.a), len(m.x)) <= maxExpr
}

// operand returns what an instruction combines A or compares it with.
func (m *machine) operand(ins bpf.RawInstruction) string {
	if withX(ins) {
		return m.x
	}
	return number(ins.K)
}

func number(k uint32) string { return fmt.Sprintf("#%d", k) }

// test returns the fact that a comparison holds.
func (m *machine) test(ins bpf.RawInstruction) fact {
	return fact{left: m.a, op: fmt.Sprint(aluOp(ins)), right: m.operand(ins), holds: true}
}

// knows tells whether facts decide a comparison, and how.
func knows(facts []fact, t fact) (holds, known bool) {
	equal := fmt.Sprint(jmpJEQ)
	for _, f := range facts {
		switch {
		case f.left != t.left || f.op != t.op:
		case f.right == t.right:
			return f.holds, true
		case f.op == equal && f.holds && f.right[0] == '#' && t.right[0] == '#': // it equals another number
			return false, true
		}
	}
	return false, false
}

// implied tells whether facts say f.
func implied(facts []fact, f fact) bool {
	holds, known := knows(facts, f)
	return known && holds == f.holds
}

// value returns the expression that value n has equalled last, "" if there is none.
func (s *way) value(n int) string {
	if v := s.values[n]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

// has tells whether the frame is known to have p.
func (s *way) has(p place) bool { return slices.ContainsFunc(s.loads, p.within) }

// start returns the beginning of a way.
func (w *walker) start(values int) way {
	s := way{values: make([][]string, values), at: -1}
	s.a, s.x = number(0), number(0)
	for n := range s.m {
		s.m[n] = number(0)
	}
	return s
}

// grown returns s with one more element, in memory of its own.
func grown[T any](s []T, e T) []T { return append(s[:len(s):len(s)], e) }

// with returns the way after a comparison with value n has held.
func (s way) with(n int) way {
	s.values = slices.Clone(s.values)
	s.values[n] = grown(s.values[n], s.a)
	return s
}

// ways appends all ways from instruction i on that end with a match or with a short frame. Choose tells how a comparison with a value
// ends, if only one end is to be walked. It returns false if there are too many ways, or some that are not understood.
func (w *walker) ways(i int, s way, choose func(i int) (yes, chosen bool), all *[]way) bool {
	for ; ; i++ {
		if w.steps--; w.steps < 0 {
			return false
		}
		ins := w.p[i]
		switch {
		case class(ins) == classRET:
			if ins.K != 0 && ins.Op&retA == 0 {
				*all = append(*all, s)
			}
			return ins.Op&retA == 0
		case ins.Op == opJA:
			i += int(ins.K)
		case isBranch(ins) && w.param[i] >= 0:
			n := w.param[i]
			yes, chosen := choose(i)
			if !chosen && slices.Contains(s.values[n], s.a) {
				yes, chosen = true, true
			}
			if !chosen || yes {
				if !w.ways(i+1+int(ins.Jt), s.with(n), choose, all) {
					return false
				}
			}
			if chosen && yes {
				return true
			}
			s.no = grown(s.no, i)
			i += int(ins.Jf)
		case isBranch(ins):
			t := s.test(ins)
			holds, known := knows(s.facts, t)
			if !known || holds {
				yes := s
				if !known {
					yes.facts = grown(s.facts, t)
				}
				if !w.ways(i+1+int(ins.Jt), yes, choose, all) {
					return false
				}
			}
			if holds {
				return true
			}
			if !known {
				t.holds = false
				s.facts = grown(s.facts, t)
			}
			i += int(ins.Jf)
		default:
			if isPacketLoad(ins) {
				if ins.K > maxOffset {
					return false
				}
				if p := s.loaded(ins); !s.has(p) {
					short := s
					short.at, short.cut = i, p
					*all = append(*all, short)
					s.loads = grown(s.loads, p)
				}
			}
			if !s.apply(ins) {
				return false
			}
		}
	}
}

// proves tells whether all frames that go the way d have the same end from instruction i on, whatever the values are that d does not
// know: a match or, if d ends with a short frame, a match or a short frame.
func (w *walker) proves(i int, s way, d *way) bool {
	for ; ; i++ {
		if w.steps--; w.steps < 0 {
			return false
		}
		ins := w.p[i]
		switch {
		case class(ins) == classRET:
			return ins.K != 0 && ins.Op&retA == 0
		case ins.Op == opJA:
			i += int(ins.K)
		case isBranch(ins):
			var holds, known bool
			t := s.test(ins)
			if n := w.param[i]; n >= 0 {
				holds = d.value(n) == s.a
				known = holds
			} else {
				holds, known = knows(s.facts, t)
			}
			if !known {
				yes := s
				if w.param[i] < 0 {
					yes.facts = grown(s.facts, t)
					t.holds = false
					s.facts = grown(s.facts, t)
				}
				if !w.proves(i+1+int(ins.Jt), yes, d) {
					return false
				}
			}
			if holds {
				i += int(ins.Jt)
			} else {
				i += int(ins.Jf)
			}
		default:
			if isPacketLoad(ins) {
				p := s.loaded(ins)
				if d.at >= 0 && d.cut.within(p) {
					return true
				}
				if !s.has(p) {
					if d.at < 0 {
						return false
					}
					s.loads = grown(s.loads, p)
				}
			}
			if !s.apply(ins) {
				return false
			}
		}
	}
}

// sound tells whether every program whose values are those that d knows ends as d does, for each frame that goes the way d.
func (w *walker) sound(d *way) bool {
	s := w.start(len(d.values))
	s.facts, s.loads = d.facts, d.loads
	return w.proves(0, s, d)
}

// covers tells whether a frame that goes the way e goes the way s too, with the same values and the same end.
func (s *way) covers(e *way) bool {
	if (s.at < 0) != (e.at < 0) || s.at >= 0 && !e.cut.within(s.cut) {
		return false
	}
	for n := range s.values {
		if v := s.value(n); v != "" && !slices.Contains(e.values[n], v) {
			return false
		}
	}
	return !slices.ContainsFunc(s.facts, func(f fact) bool { return !implied(e.facts, f) }) &&
		!slices.ContainsFunc(s.loads, func(p place) bool { return !e.has(p) })
}
