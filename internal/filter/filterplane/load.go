// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/filter/cbpf"
)

// Places in the counters of the filter, as bpf/filter/count.h has them.
const (
	placeShort     = 0
	placeMalformed = 1
	placeRules     = 2 // two for each rule
	maxRules       = 4096
)

// quietFrom is up to how many rules the verifier is asked for its reasons.
const quietFrom = 100

// foreign are the maps of the filter's object that are not its own: those of the pipeline, and what belongs to
// one program.
func foreign(name string) bool {
	switch name {
	case bpfobj.FilterMapPorts, bpfobj.FilterMapCounters, bpfobj.FilterMapFilterRest, bpfobj.FilterMapFilterServices, bpfobj.FilterMapFilterTopBuckets:
		return true
	}
	return name[0] == '.' // variables
}

// newMaps makes what a filter keeps from program to program, but for those that are there already.
func newMaps(have map[string]*ebpf.Map) (all map[string]*ebpf.Map, err error) {
	spec, err := bpfobj.LoadFilter()
	if err != nil {
		return nil, err
	}
	all = make(map[string]*ebpf.Map)
	for name, ms := range spec.Maps {
		if foreign(name) {
			continue
		}
		if m := have[name]; m != nil {
			all[name], err = m.Clone()
		} else {
			all[name], err = ebpf.NewMap(ms)
		}
		if err != nil {
			delete(all, name)
			closeMaps(all)
			return nil, fmt.Errorf("creating map %s: %w", name, bpfobj.LoadError(err))
		}
	}
	return all, nil
}

func closeMaps(all map[string]*ebpf.Map) {
	for _, m := range all {
		m.Close()
	}
}

// program is what packets meet.
type program struct {
	prog *ebpf.Program
	rest *ebpf.Map // leads on; a table of programs is emptied when nobody holds it
	top  *ebpf.Map // who sends most, nil if nobody asks
}

func (p *program) close() {
	if p != nil {
		p.prog.Close()
		p.rest.Close()
		p.top.Close()
	}
}

// purpose is what a program is loaded for.
type purpose struct {
	steps    []ruleStep
	services []Service
	top      TopBy
	talkers  *ebpf.Map // of a program before, to go on with; or nil
	tracing  bool      // leave a trace of each rule: for a Tester
}

func (on *purpose) any() bool {
	return len(on.steps) > 0 || len(on.services) > 0 || on.top != TopOff
}

func (on *purpose) looks() bool {
	return len(on.services) > 0 || on.top != TopOff ||
		slices.ContainsFunc(on.steps, func(s ruleStep) bool { return s.looks() })
}

// Of bpf/filter/flow_keys.h: what may be missing of a packet.
const (
	missedAddress = 2
	missedPorts   = 4
)

// must tells what a packet is dropped without: what rules or services ask for. Packets that only top looks at go on.
func (on *purpose) must() (missed uint8) {
	ports := func(s ruleStep) bool {
		return slices.ContainsFunc(s.sets, func(s setStep) bool { return s.endpoints })
	}
	if len(on.services) > 0 || slices.ContainsFunc(on.steps, func(s ruleStep) bool { return s.looks() }) {
		missed |= missedAddress
	}
	if len(on.services) > 0 || slices.ContainsFunc(on.steps, ports) {
		missed |= missedPorts
	}
	return missed
}

// loadProgram loads a program to stand in front of a data plane, with the maps of the filter. Without a data plane it stands
// for itself.
func loadProgram(on *purpose, fm map[string]*ebpf.Map, inst *datapath.Instance) (*program, error) {
	spec, err := bpfobj.LoadFilter()
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]any{
		bpfobj.FilterVarFilterNeedsKeys: on.looks(),
		bpfobj.FilterVarFilterRuled:     len(on.steps) > 0,
		bpfobj.FilterVarFilterTracing:   on.tracing,
		bpfobj.FilterVarFilterMust:      on.must(),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("setting %s: %w", name, err)
		}
	}
	if err := errors.Join(setServices(spec, on.services), setTop(spec, on.top)); err != nil {
		return nil, err
	}
	ps := spec.Programs[bpfobj.FilterProgFilter]
	if ps.Instructions, err = on.functions(ps.Instructions); err != nil {
		return nil, err
	}
	replace := maps.Clone(fm)
	for _, name := range []string{bpfobj.FilterMapPorts, bpfobj.FilterMapCounters} {
		if inst == nil {
			break
		}
		m := inst.Map(name)
		replace[name] = m
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	if on.top != TopOff && on.talkers != nil {
		replace[bpfobj.FilterMapFilterTopBuckets] = on.talkers
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: replace,
		// The kernel would walk through them a second time to say why it will not have them.
		Programs: ebpf.ProgramOptions{LogDisabled: len(on.steps) > quietFrom},
	})
	if errors.Is(err, unix.E2BIG) {
		return nil, fmt.Errorf("%d rules are more than the kernel's verifier walks through (a million instructions): "+
			"put addresses into sets, and ports into one expression", len(on.steps))
	}
	if err != nil {
		return nil, bpfobj.LoadError(err)
	}
	defer coll.Close()
	if err := putServices(coll.Maps[bpfobj.FilterMapFilterServices], on.services); err != nil {
		return nil, err
	}
	p := &program{prog: coll.DetachProgram(bpfobj.FilterProgFilter), rest: coll.DetachMap(bpfobj.FilterMapFilterRest)}
	if on.top != TopOff {
		p.top = coll.DetachMap(bpfobj.FilterMapFilterTopBuckets)
	}
	return p, nil
}

// functions puts the rules into their place, and empties the functions of what is off: before 6.8 the verifier walks
// every function, called or not.
func (on *purpose) functions(ins asm.Instructions) (_ asm.Instructions, err error) {
	nothing := asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	bodies := make(map[string]asm.Instructions)
	for name, used := range map[string]bool{
		fnRules: len(on.steps) > 0, fnKeys: on.looks(), fnSyn: len(on.services) > 0,
		fnTop: on.top != TopOff,
	} {
		if !used {
			bodies[name] = nothing
		}
	}
	var chunks []asm.Instructions
	if len(on.steps) > 0 {
		if bodies[fnRules], chunks, err = rulesBody(on.steps); err != nil {
			return nil, fmt.Errorf("translating the rules: %w", err)
		}
	}
	for n, chunk := range chunks {
		if ins, err = anotherFunction(ins, fnRules, chunkName(n), chunk); err != nil {
			return nil, err
		}
	}
	for name, body := range bodies {
		if ins, err = cbpf.ReplaceFunction(ins, name, body); err != nil {
			return nil, err
		}
	}
	return calledFunctions(ins), nil
}

// anotherFunction adds a function with the arguments of one that is there. Labels within are made its own.
func anotherFunction(ins asm.Instructions, like, name string, body asm.Instructions) (asm.Instructions, error) {
	n := slices.IndexFunc(ins, func(i asm.Instruction) bool { return i.Symbol() == like })
	if n < 0 || len(body) == 0 || body[0].Symbol() != "" {
		return nil, fmt.Errorf("no function %s, or %s is empty or begins with a label", like, name)
	}
	fn := btf.FuncMetadata(&ins[n])
	if fn == nil {
		return nil, fmt.Errorf("function %s has no type", like)
	}
	another := *fn
	another.Name = name
	own := make(map[string]bool)
	for _, i := range body {
		own[i.Symbol()] = i.Symbol() != ""
	}
	out := slices.Clone(ins)
	for k, i := range body {
		if own[i.Symbol()] {
			i = i.WithSymbol(name + "." + i.Symbol())
		}
		if own[i.Reference()] {
			i = i.WithReference(name + "." + i.Reference())
		}
		if k == 0 {
			i = btf.WithFuncMetadata(i.WithSymbol(name), &another).WithSource(ins[n].Source())
		}
		out = append(out, i)
	}
	return out, nil
}

// calledFunctions leaves out the functions that nothing calls: the verifier would look at them, or refuse them.
func calledFunctions(ins asm.Instructions) asm.Instructions {
	var order []string
	functions := make(map[string]asm.Instructions)
	for _, i := range ins {
		if btf.FuncMetadata(&i) != nil {
			order = append(order, i.Symbol())
		}
		current := order[len(order)-1]
		functions[current] = append(functions[current], i)
	}
	called := map[string]bool{order[0]: true}
	for open := []string{order[0]}; len(open) > 0; {
		f := open[len(open)-1]
		open = open[:len(open)-1]
		for _, i := range functions[f] {
			// A call, or the address of a callback.
			if to := i.Reference(); i.IsFunctionReference() && !called[to] {
				called[to] = true
				open = append(open, to)
			}
		}
	}
	var out asm.Instructions
	for _, f := range order {
		if called[f] {
			out = append(out, functions[f]...)
		}
	}
	return out
}
