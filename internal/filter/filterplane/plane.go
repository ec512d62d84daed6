// SPDX-License-Identifier: Apache-2.0

// Package filterplane is the packet filter of a data plane: a program in front of the pipeline, made anew when its rules
// change, with its sets, limits and counters.
package filterplane

import (
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// topPin is where the talkers of a program are pinned, if somebody asks for them.
const topPin = "top"

// plane is the filter of an instance.
type plane struct {
	state *loaded
	maps  map[string]*ebpf.Map
	prog  *program // nil if no packet has to meet it
}

// close is for one that is not a datapath.Front's.
func (p *plane) close() {
	closeMaps(p.maps)
	p.prog.close()
}

// planeOf is what stands in front of a data plane, which stays the one to close it.
func planeOf(f *datapath.Front) (*plane, error) {
	p := &plane{state: &loaded{}, maps: f.Maps}
	if f.State == nil {
		return p, nil
	}
	var err error
	if p.state, err = unpack(f.State); err != nil {
		return nil, err
	}
	if f.Prog != nil {
		p.prog = &program{prog: f.Prog, rest: f.TailCall, top: f.Own[topPin]}
	}
	return p, nil
}

// front has the engine put it in front of a data plane. It is the engine's to close then, and closed after an error.
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
	f.Prog, f.TailCall = p.prog.prog, p.prog.rest
	if p.prog.top != nil {
		f.Own = map[string]*ebpf.Map{topPin: p.prog.top}
	}
	return f, nil
}

// next is the plane for another state, or for another generation of the pipeline. It leads nowhere yet.
func (p *plane) next(state *loaded, members map[string]Members, on datapath.Behind) (_ *plane, err error) {
	q := &plane{state: state}
	if state.Filter.empty() {
		return q, nil
	}
	defer func() {
		if err != nil {
			q.close()
		}
	}()
	if q.maps, err = newMaps(p.maps); err != nil {
		return nil, err
	}
	if err := q.fill(p.state, members); err != nil {
		return nil, err
	}
	purpose := purpose{steps: state.steps(on.Index), services: state.Filter.Services, top: state.Filter.Top}
	if p.prog != nil {
		purpose.talkers = p.prog.top
	}
	if !purpose.any() {
		return q, nil
	}
	if err := on.Inst.SameReasons(); err != nil { // the filter counts in its maps
		return nil, err
	}
	q.prog, err = loadProgram(&purpose, q.maps, on.Inst)
	return q, err
}

// fill writes what is new in a state: no program looks at it yet.
func (p *plane) fill(old *loaded, members map[string]Members) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("counting the CPUs: %w", err)
	}
	for name, n := range p.state.Rules {
		if was, ok := old.Rules[name]; ok && was == n {
			continue
		}
		place := placeRules + 2*n
		for _, at := range []int{place, place + 1} {
			if err := p.maps[bpfobj.FilterMapFilterCounts].Put(uint32(at), make([]bpfobj.PipelineCounter, cpus)); err != nil {
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
		// Somebody who died over another change may have left members there.
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

// settle frees what only the state before used, once no program does. What fails here is freed when its number is used
// again.
func (p *plane) settle(old *loaded) {
	if p.maps == nil {
		return
	}
	for name, l := range old.Limits {
		if now, ok := p.state.Limits[name]; !ok || now.Number != l.Number {
			_ = dropLimit(p.maps[bpfobj.FilterMapFilterLimits], p.maps[bpfobj.FilterMapFilterLimitTables], uint32(l.Number))
		}
	}
	for name, n := range old.Sets {
		if now, ok := p.state.Sets[name]; !ok || now != n {
			_ = dropSet(p.maps, uint32(n))
		}
	}
}

// layoutsFit tells whether the maps of a filter, perhaps another version's, are what these programs take.
func (p *plane) layoutsFit() (map[string]string, bool, error) {
	spec, err := bpfobj.LoadFilter()
	if err != nil {
		return nil, false, err
	}
	layouts := datapath.MapLayouts(spec)
	maps.DeleteFunc(layouts, func(name, _ string) bool { return foreign(name) })
	for name, m := range p.maps {
		ms := spec.Maps[name]
		if ms == nil || p.state.Layouts[name] != layouts[name] || ms.Compatible(m) != nil {
			return layouts, false, nil
		}
	}
	return layouts, true, nil
}
