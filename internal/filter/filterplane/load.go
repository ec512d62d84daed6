// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/bpfobj/fold"
	"culvert/internal/datapath"
	"culvert/internal/filter/cbpf"
)

// Indexes into filter_counts, as bpf/filter/count.h has them.
const (
	counterShort     = 0
	counterMalformed = 1
	counterRules     = 2 // of the first rule; each rule has two
	maxRules         = 4096
)

// maxVerifierLog is the largest number of rules for which the verifier's log is read.
const maxVerifierLog = 100

// foreign tells whether a map of the filter's object does not stay from program to program: it belongs to the pipeline, or to
// one program.
func foreign(name string) bool {
	switch name {
	case bpfobj.FilterMapPorts, bpfobj.FilterMapCounters, bpfobj.FilterMapFilterRest, bpfobj.FilterMapFilterServices, bpfobj.FilterMapFilterTopBuckets:
		return true
	}
	return name[0] == '.' // variables
}

// newMaps returns the maps that a filter keeps from program to program, by their names: clones of those that have contains,
// and new ones.
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

// program is a loaded filter program with the maps that belong to it alone.
type program struct {
	prog *ebpf.Program
	// tailCall is the program array through which the program goes on. The kernel empties it when no process and no pin
	// holds it.
	tailCall *ebpf.Map
	top      *ebpf.Map // counts talkers; nil if top is off
	found    int       // the number of rules that lookups find
	straight bool      // the program has a straight way
}

func (p *program) close() {
	if p != nil {
		p.prog.Close()
		p.tailCall.Close()
		p.top.Close()
	}
}

// programConfig is what a program is loaded for.
type programConfig struct {
	steps    []ruleStep
	services []Service
	top      TopBy
	talkers  *ebpf.Map // of the program before, to go on counting in; may be nil
	tracing  bool      // record the rules that match, for a Tester
	bonds    bool      // an interface of the data plane is a bond
	// general leaves out the straight way. Tests compare what rules do with and without it.
	general bool
	// least is the number of rules of one shape from which on they are found by a lookup. 0 stands for minLookup. Tests compare what
	// rules do with and without lookups.
	least int
}

// needed tells whether packets have to meet a program at all.
func (c *programConfig) needed() bool {
	return len(c.steps) > 0 || len(c.services) > 0 || c.top != TopOff
}

// needsKeys tells whether the program has to fill struct flow_keys.
func (c *programConfig) needsKeys() bool {
	return len(c.services) > 0 || c.top != TopOff || c.ruleNeedsKeys()
}

func (c *programConfig) ruleNeedsKeys() bool {
	return slices.ContainsFunc(c.steps, func(s ruleStep) bool { return s.needsKeys() })
}

// KEYS_ADDRESS and KEYS_PORTS of bpf/filter/flow_keys.h.
const (
	keysAddress = 2
	keysPorts   = 4
)

// requiredKeys returns the fields of struct flow_keys that rules or services need. A packet in which they could not be read is
// dropped. What only top needs is not required.
func (c *programConfig) requiredKeys() (keys uint8) {
	needsPorts := func(s ruleStep) bool {
		return slices.ContainsFunc(s.sets, func(s setStep) bool { return s.endpoints })
	}
	if len(c.services) > 0 || c.ruleNeedsKeys() {
		keys |= keysAddress
	}
	if len(c.services) > 0 || slices.ContainsFunc(c.steps, needsPorts) {
		keys |= keysPorts
	}
	return keys
}

// loadProgram loads a program for packets of a data plane, with the maps of the filter. The program of a Tester has no data
// plane: on is zero.
func loadProgram(c *programConfig, filterMaps map[string]*ebpf.Map, on datapath.Behind) (*program, error) {
	spec, shared, err := on.Shape(Stage)
	plain := err == nil && spec == nil
	if plain {
		spec, err = bpfobj.LoadFilter()
	}
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]any{
		bpfobj.FilterVarFilterNeedsKeys: c.needsKeys(),
		bpfobj.FilterVarFilterRuled:     len(c.steps) > 0,
		bpfobj.FilterVarFilterTracing:   c.tracing,
		bpfobj.FilterVarFilterBonds:     c.bonds,
		bpfobj.FilterVarFilterMust:      c.requiredKeys(),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("setting %s: %w", name, err)
		}
	}
	if err := errors.Join(setServices(spec, c.services), setTop(spec, c.top)); err != nil {
		return nil, err
	}
	ps := spec.Programs[bpfobj.FilterProgFilter]
	lookups := lookupsOf(c.steps, cmp.Or(c.least, minLookup))
	maps.Copy(spec.Maps, lookupMaps(lookups, c.steps))
	if ps.Instructions, err = c.functions(ps.Instructions, lookups); err != nil {
		return nil, err
	}
	straight := false
	if plain && len(lookups) == 0 && c.straight() {
		if ps.Instructions, straight, err = withStraight(ps.Instructions, c.steps); err != nil {
			return nil, fmt.Errorf("translating the rules: %w", err)
		}
	}
	replace := maps.Clone(filterMaps)
	maps.Copy(replace, shared)
	for _, name := range []string{bpfobj.FilterMapPorts, bpfobj.FilterMapCounters} {
		if on.Inst == nil {
			break
		}
		m := on.Inst.Map(name)
		replace[name] = m
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	if c.top != TopOff && c.talkers != nil {
		replace[bpfobj.FilterMapFilterTopBuckets] = c.talkers
	}
	coll, err := fold.Load(spec, ebpf.CollectionOptions{
		MapReplacements: replace,
		// To fill the log, the verifier walks through all rules a second time.
		Programs: ebpf.ProgramOptions{LogDisabled: len(c.steps) > maxVerifierLog},
	})
	if errors.Is(err, unix.E2BIG) {
		return nil, fmt.Errorf("%d rules are more than the kernel's verifier walks through (a million instructions): "+
			"put addresses into sets, and ports into one expression", len(c.steps))
	}
	if err != nil {
		return nil, bpfobj.LoadError(err)
	}
	defer coll.Close()
	if err := putServices(coll.Maps[bpfobj.FilterMapFilterServices], c.services); err != nil {
		return nil, err
	}
	p := &program{prog: coll.DetachProgram(bpfobj.FilterProgFilter), tailCall: coll.DetachMap(bpfobj.FilterMapFilterRest)}
	p.found, p.straight = looked(lookups), straight
	if c.top != TopOff {
		p.top = coll.DetachMap(bpfobj.FilterMapFilterTopBuckets)
	}
	return p, nil
}

// functions replaces the function of the rules, and empties the functions that c does not use. Before 6.8 the verifier walks
// every function, called or not.
func (c *programConfig) functions(ins asm.Instructions, lookups []*lookup) (_ asm.Instructions, err error) {
	empty := asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	bodies := make(map[string]asm.Instructions)
	for name, used := range map[string]bool{
		fnRules: len(c.steps) > 0, fnKeys: c.needsKeys(), fnSyn: len(c.services) > 0,
		fnTop: c.top != TopOff,
	} {
		if !used {
			bodies[name] = empty
		}
	}
	var chunks []asm.Instructions
	if len(c.steps) > 0 {
		if bodies[fnRules], chunks, err = rulesBody(itemsOf(c.steps, lookups), c.bonds); err != nil {
			return nil, fmt.Errorf("translating the rules: %w", err)
		}
	}
	for n, chunk := range chunks {
		if ins, err = addFunction(ins, fnRules, chunkName(n), chunk); err != nil {
			return nil, err
		}
	}
	for _, l := range lookups {
		walk, err := l.walk(c.steps)
		if err != nil {
			return nil, fmt.Errorf("translating rules of one shape: %w", err)
		}
		code, err := l.function(&c.steps[l.rules[0]], c.bonds, len(walk))
		if err != nil {
			return nil, fmt.Errorf("translating rules of one shape: %w", err)
		}
		for n, code := range append(walk, code) {
			name := l.name()
			if n < len(walk) {
				name = l.walkName(n)
			}
			if ins, err = addFunction(ins, fnRules, name, code); err != nil {
				return nil, err
			}
		}
	}
	for name, body := range bodies {
		if ins, err = cbpf.ReplaceFunction(ins, name, body); err != nil {
			return nil, err
		}
	}
	return cbpf.CalledFunctions(ins), nil
}

// addFunction adds a function of the type of function like. Labels within the body get the prefix "name.", because labels have
// to be unique in a program.
func addFunction(ins asm.Instructions, like, name string, body asm.Instructions) (asm.Instructions, error) {
	n := slices.IndexFunc(ins, func(i asm.Instruction) bool { return i.Symbol() == like })
	if n < 0 || len(body) == 0 || body[0].Symbol() != "" {
		return nil, fmt.Errorf("no function %s, or %s is empty or begins with a label", like, name)
	}
	fn := btf.FuncMetadata(&ins[n])
	if fn == nil {
		return nil, fmt.Errorf("function %s has no type", like)
	}
	added := *fn
	added.Name = name
	local := make(map[string]bool)
	for _, i := range body {
		local[i.Symbol()] = i.Symbol() != ""
	}
	out := slices.Clone(ins)
	for k, i := range body {
		if local[i.Symbol()] {
			i = i.WithSymbol(name + "." + i.Symbol())
		}
		if local[i.Reference()] {
			i = i.WithReference(name + "." + i.Reference())
		}
		if k == 0 {
			i = btf.WithFuncMetadata(i.WithSymbol(name), &added).WithSource(ins[n].Source())
		}
		out = append(out, i)
	}
	return out, nil
}
