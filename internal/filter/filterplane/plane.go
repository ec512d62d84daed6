// SPDX-License-Identifier: Apache-2.0

// Package filterplane is the packet filter of a data plane: a program in front of the pipeline, which is made anew when the
// rules change, with its sets, limits and counters.
package filterplane

import (
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// topPin is the name under which a program's table of talkers is pinned, if it has one.
const topPin = "top"

// plane is the filter of a data plane: its state, the maps that it keeps from program to program, and its program.
type plane struct {
	state *filterState
	maps  map[string]*ebpf.Map
	prog  *program // nil if packets need not meet a program
}

// close closes the maps and the program. A plane of planeOf is not closed: the datapath.Front owns them.
func (p *plane) close() {
	closeMaps(p.maps)
	p.prog.close()
}

// planeOf returns the filter that a datapath.Front describes. The Front keeps its maps and its program.
func planeOf(f *datapath.Front) (*plane, error) {
	p := &plane{state: &filterState{}, maps: f.Maps}
	if f.State == nil {
		return p, nil
	}
	var err error
	if p.state, err = unpack(f.State); err != nil {
		return nil, err
	}
	if f.Prog != nil {
		p.prog = &program{prog: f.Prog, tailCall: f.TailCall, top: f.Own[topPin]}
	}
	return p, nil
}

// front returns p as the engine puts it in front of a data plane. The engine owns the maps and the program from then on. On
// an error they are closed.
func (p *plane) front() (*datapath.Front, error) {
	if p.state.Filter.empty() {
		p.close()
		return &datapath.Front{}, nil
	}
	state, err := p.state.pack()
	if err != nil {
		p.close()
		return nil, err
	}
	f := &datapath.Front{State: state, Maps: p.maps}
	if p.prog == nil {
		return f, nil
	}
	f.Prog, f.TailCall = p.prog.prog, p.prog.tailCall
	if p.prog.top != nil {
		f.Own = map[string]*ebpf.Map{topPin: p.prog.top}
	}
	return f, nil
}

// next returns the plane that replaces p, for another state or another generation of the pipeline. It shares p's maps. The
// program array of its program is still empty. On an error, what has been written to the maps is freed.
func (p *plane) next(state *filterState, members map[string]Members, on datapath.Behind) (_ *plane, err error) {
	q := &plane{state: state}
	state.Found = 0
	if state.Filter.empty() {
		return q, nil
	}
	defer func() {
		if err != nil {
			freeNumbers(q.maps, state, p.state)
			q.close()
		}
	}()
	if q.maps, err = newMaps(p.maps); err != nil {
		return nil, err
	}
	if err := q.fill(p.state, members); err != nil {
		return nil, err
	}
	c := programConfig{
		steps: state.steps(on.Index), services: state.Filter.Services, top: state.Filter.Top, bonds: on.AnyBond(), general: on.Inst.General(),
	}
	if p.prog != nil {
		c.talkers = p.prog.top
	}
	if !c.needed() {
		return q, nil
	}
	if err := on.Inst.SameReasons(); err != nil { // the filter counts in the instance's maps
		return nil, err
	}
	if q.prog, err = loadProgram(&c, q.maps, on); err != nil {
		return nil, err
	}
	state.Found = q.prog.found
	return q, nil
}

// fill writes to the maps what p's state has under numbers that old does not use. No program reads these numbers yet.
func (p *plane) fill(old *filterState, members map[string]Members) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("counting the CPUs: %w", err)
	}
	for name, n := range p.state.Rules {
		if was, ok := old.Rules[name]; ok && was == n {
			continue
		}
		matched := counterRules + 2*n
		for _, counter := range []int{matched, matched + 1} {
			if err := p.maps[bpfobj.FilterMapFilterCounts].Put(uint32(counter), make([]bpfobj.PipelineCounter, cpus)); err != nil {
				return fmt.Errorf("clearing the counters of rule %s: %w", name, err)
			}
		}
	}
	for name, l := range p.state.Limits {
		if was, ok := old.Limits[name]; ok && was.Number == l.Number {
			continue
		}
		if err := putLimit(p.maps[bpfobj.FilterMapFilterLimits], p.maps[bpfobj.FilterMapFilterLimitTables], uint32(l.Number), l.Rate); err != nil {
			return fmt.Errorf("limit of rule %s: %w", name, err)
		}
	}
	for name, n := range p.state.Sets {
		if was, ok := old.Sets[name]; ok && was == n {
			continue
		}
		// A process that died during another change may have left members under this number.
		if err := dropSet(p.maps, uint32(n)); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		if m, ok := members[name]; ok {
			if err := putMembers(p.maps, uint32(n), m); err != nil {
				return fmt.Errorf("set %s: %w", name, err)
			}
		}
	}
	return fillTop(p.maps[bpfobj.FilterMapFilterTopSecret])
}

// settle frees what only old uses, the state before p, or if p is not in force, what only p uses. No program reads it any more.
func (p *plane) settle(old *filterState, inForce bool) {
	unused, used := old, p.state
	if !inForce {
		unused, used = p.state, old
	}
	freeNumbers(p.maps, unused, used)
}

// freeNumbers frees the members of sets and the limits whose numbers unused has and used does not. No program may read them.
// A number that cannot be freed now is freed when it is used again. all are the maps of the filter; nil if there are none.
func freeNumbers(all map[string]*ebpf.Map, unused, used *filterState) {
	if all == nil {
		return
	}
	for name, l := range unused.Limits {
		if now, ok := used.Limits[name]; !ok || now.Number != l.Number {
			_ = dropLimit(all[bpfobj.FilterMapFilterLimits], all[bpfobj.FilterMapFilterLimitTables], uint32(l.Number))
		}
	}
	for name, n := range unused.Sets {
		if now, ok := used.Sets[name]; !ok || now != n {
			_ = dropSet(all, uint32(n))
		}
	}
}

// layoutsFit tells whether this version's programs can use the maps of p, which another version may have made. Layouts are
// those that this version's maps have.
func (p *plane) layoutsFit() (layouts map[string]string, fit bool, err error) {
	spec, err := bpfobj.LoadFilter()
	if err != nil {
		return nil, false, err
	}
	layouts = datapath.MapLayouts(spec)
	maps.DeleteFunc(layouts, func(name, _ string) bool { return foreign(name) })
	for name, m := range p.maps {
		ms := spec.Maps[name]
		if ms == nil || p.state.Layouts[name] != layouts[name] || ms.Compatible(m) != nil {
			return layouts, false, nil
		}
	}
	return layouts, true, nil
}
