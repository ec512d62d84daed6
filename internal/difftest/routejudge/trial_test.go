// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"fmt"
	"slices"
	"testing"
)

// trial is a pair of twins: the kernel's router and one with the fast path.
type trial struct {
	*judge
	t    *testing.T
	g    *generator
	fast *culvert
	s    scenario
	undo [][2]string
}

// newTrial sets up twins with the routes of a scenario.
func newTrial(t *testing.T, s scenario, seed uint64, attach func(*twin) *culvert) *trial {
	t.Helper()
	pinToCPU(t)
	kernel, fast := newTwin(t), newTwin(t)
	if kernel.index != fast.index {
		t.Fatalf("interfaces %v and %v: the twins differ", kernel.index, fast.index)
	}
	g := newGenerator(seed)
	g.table.simple, g.table.locals = s.simple, s.locals
	if s.tables != nil {
		g.table.ids = s.tables
	}
	lines := g.nexthopObjects() + g.fill(400) + s.lines
	for _, w := range []*twin{kernel, fast} {
		w.enter()
		w.ip(lines)
	}
	tr := &trial{t: t, g: g, judge: newJudge(t, kernel, g)}
	tr.fast = attach(fast)
	tr.begin(s)
	return tr
}

// begin applies the sysctls of a scenario and makes a judge for it.
func (tr *trial) begin(s scenario) {
	kernel := tr.kernel
	tr.s, tr.undo = s, nil
	for _, w := range []*twin{kernel, tr.fast.twin} {
		w.enter()
		for _, setting := range s.sysctls {
			path := "net/" + setting[0]
			if w == kernel {
				tr.undo = append(tr.undo, [2]string{path, fmt.Sprint(w.get(path))})
			}
			w.set(path, setting[1])
		}
	}
	tr.judge = newJudge(tr.t, kernel, tr.g)
	tr.name, tr.again = s.name, tr.fast.fate
	tr.takes, tr.exempt, tr.down, tr.explain = s.takes, s.exempt, s.down, tr.fast.explain
	tr.asks = !s.simple
	tr.probes = slices.ContainsFunc(s.sysctls, func(setting [2]string) bool { return setting[0] == useNeighbors })
}

// end restores the sysctls.
func (tr *trial) end() {
	slices.Reverse(tr.undo)
	for _, w := range []*twin{tr.kernel, tr.fast.twin} {
		w.enter()
		for _, setting := range tr.undo {
			w.set(setting[0], setting[1])
		}
	}
}

// churn changes the tables of both twins.
func (tr *trial) churn(n int) {
	lines := tr.g.churn(n)
	for _, w := range []*twin{tr.kernel, tr.fast.twin} {
		w.enter()
		if tr.s.gone {
			w.try(lines)
		} else {
			w.ip(lines)
		}
	}
}

// groupScenarios groups scenarios that differ only in sysctls, so that they can use the same twins.
func groupScenarios(all []scenario) (groups [][]scenario) {
	index := make(map[string]int)
	for _, s := range all {
		key := fmt.Sprint(s.simple, s.locals, s.tables, s.lines, s.gone)
		if _, found := index[key]; !found {
			index[key] = len(groups)
			groups = append(groups, nil)
		}
		groups[index[key]] = append(groups[index[key]], s)
	}
	return groups
}
