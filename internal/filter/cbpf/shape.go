// SPDX-License-Identifier: Apache-2.0

package cbpf

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/bpf"
)

/*
Shape is what programs have in common that differ only in constants with which they compare A. Each constant that differs is a value
of the shape. Constants that are the same in two places of each program may be one value.

The values that a frame would match are in the frame. So a program of the shape is run once for all, without these comparisons: each
stores A instead, as if it held. At a match, what it has stored are the values of all programs that match the frame this way. A
program matches a frame in several ways if it has alternatives, as "host" has (source or destination). Then there are several runs, in
each of which some comparisons are as if they did not hold.

NewShape finds runs, and proves that they find the values of all programs that match, and no others. So it does for frames that end
before a byte that a program reads: which programs read it may depend on some of the values.
*/
type Shape struct {
	// Values is the number of values of a program.
	Values int
	Runs   []Run
	param  []int // see walker
	walks  bool  // runs may have Unknown
	p      Program
}

// Run is one run of a shape.
type Run struct {
	// No are the comparisons with values that do not hold. All others hold.
	No []int
	// Cuts has for each packet load at which the frame may be too short what is stored by then: bit n stands for value n. If the
	// frame is too short, all programs with these values read beyond its end, but for those that match.
	Cuts map[int]uint32
}

// Unknown is in Cuts where values do not tell which programs read beyond the end of the frame: they have to be run.
const Unknown = ^uint32(0)

// Walks tells whether Cuts has Unknown.
func (r *Run) Walks() bool {
	for _, stored := range r.Cuts {
		if stored == Unknown {
			return true
		}
	}
	return false
}

const (
	// MaxValues is the most values of a shape, and maxRuns the most runs.
	MaxValues = 10
	maxRuns   = 4
	// maxShape is the most instructions of a shape.
	maxShape = 96
)

// compares tells whether an instruction compares A with a constant, for equality.
func compares(ins bpf.RawInstruction) bool { return ins.Op == classJMP|jmpJEQ }

// Template is equal for programs that may have one shape: they differ in constants with which they compare A, if at all.
func (p Program) Template() string {
	var b strings.Builder
	for _, ins := range p {
		if compares(ins) {
			ins.K = 0
		}
		fmt.Fprintf(&b, "%x %x %x %x\n", ins.Op, ins.Jt, ins.Jf, ins.K)
	}
	return b.String()
}

// NewShape returns the shape of programs that have one template. It returns nil if they have none.
func NewShape(programs []Program) *Shape {
	if len(programs[0]) > maxShape {
		return nil
	}
	// Constants that are the same may belong together, as those of "src host" for IPv4 and ARP, or not: src port 5 and dst port 5.
	for _, together := range []bool{true, false} {
		for _, walks := range []bool{false, true} {
			s := &Shape{p: programs[0], walks: walks}
			s.findValues(programs, together)
			if s.Values > 0 && s.Values <= MaxValues && s.plan() {
				return s
			}
		}
	}
	return nil
}

// findValues numbers the constants that differ. Those that are the same in each program get one number if they are to be together.
func (s *Shape) findValues(programs []Program, together bool) {
	s.param = make([]int, len(s.p))
	columns := make(map[string]int)
	for i, ins := range s.p {
		s.param[i] = -1
		var column strings.Builder
		differs := false
		for _, p := range programs {
			if compares(ins) {
				fmt.Fprintf(&column, "%x ", p[i].K)
				differs = differs || p[i].K != ins.K
			}
		}
		if !differs {
			continue
		}
		if !together {
			fmt.Fprint(&column, i)
		}
		n, ok := columns[column.String()]
		if !ok {
			n = len(columns)
			columns[column.String()] = n
		}
		s.param[i] = n
	}
	s.Values = len(columns)
}

// ValuesOf returns the values of a program of the shape.
func (s *Shape) ValuesOf(p Program) []uint32 {
	values := make([]uint32, s.Values)
	for i, n := range s.param {
		if n >= 0 {
			values[n] = p[i].K
		}
	}
	return values
}

// Choices returns the choices of a run. Slot returns the offset from R10 at which a value is stored.
func (s *Shape) Choices(r *Run, slot func(value int) int16) map[int]Choice {
	c := make(map[int]Choice)
	for i, n := range s.param {
		if n < 0 {
			continue
		}
		if slices.Contains(r.No, i) {
			c[i] = Choice{}
		} else {
			c[i] = Choice{Yes: true, Slot: slot(n)}
		}
	}
	return c
}

// plan finds the runs. It returns false if there are none that do.
func (s *Shape) plan() bool {
	w := &walker{p: s.p, param: s.param, steps: maxSteps}
	var left []way // those that no run covers
	none := func(int) (yes, chosen bool) { return false, false }
	if !w.ways(0, w.start(s.Values), none, &left) {
		return false
	}
	candidates := [][]int{nil}
	for n := range left {
		d := &left[n]
		if d.at >= 0 {
			continue
		}
		if slices.ContainsFunc(d.values, func(v []string) bool { return len(v) == 0 }) {
			return false // any value would do
		}
		candidates = append(candidates, d.no)
	}
	slices.SortStableFunc(candidates, func(a, b []int) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return slices.Compare(a, b)
	})
	candidates = slices.CompactFunc(candidates, slices.Equal)
	for len(left) > 0 {
		if len(s.Runs) == maxRuns {
			return false
		}
		best, rest := s.best(w, candidates, left)
		if best == nil {
			return false
		}
		s.Runs, left = append(s.Runs, *best), rest
	}
	return true
}

// best returns the run that covers most ways, and the ways that it does not cover. It returns nil if none covers any.
func (s *Shape) best(w *walker, candidates [][]int, left []way) (best *Run, rest []way) {
	rest = left
	for _, no := range candidates {
		if r, after := s.try(w, no, left); r != nil && len(after) < len(rest) {
			best, rest = r, after
		}
	}
	if best == nil {
		return nil, nil
	}
	for _, no := range candidates {
		both := append(slices.Clone(best.No), no...)
		slices.Sort(both)
		r, after := s.try(w, slices.Compact(both), left)
		if r != nil && len(after) < len(rest) {
			best, rest = r, after
		}
	}
	return best, rest
}

// try returns a run in which some comparisons do not hold, and which of the ways it does not cover. It returns nil if the run finds
// values that it should not find.
func (s *Shape) try(w *walker, no []int, left []way) (*Run, []way) {
	var ways []way
	choose := func(i int) (yes, chosen bool) { return !slices.Contains(no, i), true }
	if !w.ways(0, w.start(s.Values), choose, &ways) {
		return nil, nil
	}
	r := &Run{No: no, Cuts: make(map[int]uint32)}
	for n := range ways {
		d := &ways[n]
		var stored uint32
		for v := range s.Values {
			if d.value(v) != "" {
				stored |= 1 << v
			}
		}
		sound := (d.at >= 0 || stored == 1<<s.Values-1) && w.sound(d)
		if other, ok := r.Cuts[d.at]; ok && other != stored {
			sound = false
		}
		switch {
		case sound && d.at >= 0:
			r.Cuts[d.at] = stored
		case !sound && d.at >= 0 && s.walks:
			r.Cuts[d.at] = Unknown
		case !sound:
			return nil, nil
		}
	}
	rest := slices.DeleteFunc(slices.Clone(left), func(e way) bool {
		return slices.ContainsFunc(ways, func(d way) bool { return d.covers(&e) })
	})
	return r, rest
}
