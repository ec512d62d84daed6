// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"fmt"
	"net"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// Verdict is what a filter does with a packet.
type Verdict struct {
	// Action is Drop or Pass.
	Action Action
	// Rule is the name of the rule that decided, "" if none did.
	Rule string
	// Matched holds the names of the rules that matched, in their order: those that count or limit, then the one that decided.
	Matched []string
	// Reason is why the packet is dropped before any rule sees it, "" for other packets.
	Reason string
	// Short and Malformed tell whether a filter counts the packet as such (see Counters).
	Short, Malformed bool
}

// Tester runs packets through a filter of its own, which is attached to no interface. The counters of other filters do not
// change. Its limits never drop, because the packets of a file do not come at a rate of their own.
type Tester struct {
	rules   map[int]string    // the names of rules by the index of their first counter
	actions map[string]Action // by the names of rules
	prog    *program
	maps    map[string]*ebpf.Map
}

// NewTester loads a filter that uses the sets of inst. If inst is nil, its rules may not use sets.
func NewTester(inst *datapath.Instance, f Filter) (*Tester, error) {
	sets := make(map[string]*ebpf.Map)
	known := &filterState{}
	if inst != nil {
		p, done, err := read(inst)
		if err != nil {
			return nil, err
		}
		defer done()
		for _, name := range setMaps {
			if p.maps[name] != nil {
				sets[name] = p.maps[name]
			}
		}
		known = &filterState{Filter: Filter{Sets: p.state.Filter.Sets}, Sets: p.state.Sets}
	}
	f = f.clone()
	f.Sets = known.Filter.Sets
	t, _, err := newTester(known, sets, f, 0)
	return t, err
}

// newTester loads a filter whose sets have the numbers that known has, and returns the filter's state too. Sets holds the maps
// with the members by their names; the tester makes those that are missing. Least is for tests (see programConfig).
func newTester(known *filterState, sets map[string]*ebpf.Map, f Filter, least int) (*Tester, *filterState, error) {
	f.Services, f.Top = nil, TopOff
	for n := range f.Rules {
		if f.Rules[n].Action == Limit {
			f.Rules[n].Action, f.Rules[n].Rate = Count, nil
		}
	}
	if err := f.Validate(); err != nil {
		return nil, nil, err
	}
	state, err := known.succeed(f, nil)
	if err != nil {
		return nil, nil, err
	}
	t := &Tester{rules: make(map[int]string), actions: make(map[string]Action)}
	for _, r := range f.Rules {
		t.rules[counterRules+2*state.Rules[r.Name]], t.actions[r.Name] = r.Name, r.Action
	}
	if t.maps, err = newMaps(sets); err != nil {
		return nil, nil, err
	}
	steps := state.steps(func(name string) (int, bool) {
		dev, err := net.InterfaceByName(name)
		if err != nil {
			return 0, false
		}
		return dev.Index, true
	})
	if t.prog, err = loadProgram(&programConfig{steps: steps, tracing: true, least: least}, t.maps, datapath.Behind{}); err != nil {
		t.Close()
		return nil, nil, err
	}
	return t, state, nil
}

// Close closes the program and the maps.
func (t *Tester) Close() {
	closeMaps(t.maps)
	t.prog.close()
}

// Run returns what the filter does with an Ethernet frame that comes in by an interface of this network namespace. If iface is
// "", the frame comes in by an interface that no rule names.
func (t *Tester) Run(frame []byte, iface string) (v Verdict, err error) {
	md := bpfobj.XDPMD{DataEnd: uint32(len(frame))}
	if iface != "" {
		dev, err := net.InterfaceByName(iface)
		if err != nil {
			return v, fmt.Errorf("interface %s: %w", iface, err)
		}
		md.IngressIfindex = uint32(dev.Index)
	}
	v, _, err = t.run(frame, md)
	return v, err
}

// run is Run for a frame that may lie in several buffers, as md says. It also returns the frame as it is afterwards.
func (t *Tester) run(frame []byte, md bpfobj.XDPMD) (v Verdict, out []byte, err error) {
	if err := t.maps[bpfobj.FilterMapFilterTraces].Put(uint32(0), uint32(0)); err != nil {
		return v, nil, fmt.Errorf("clearing the trace: %w", err)
	}
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: md}
	action, err := t.prog.prog.Run(&opts)
	if err != nil {
		return v, nil, fmt.Errorf("running a packet of %d bytes through the filter: %w", len(frame), err)
	}
	counters, err := t.trace()
	if err != nil {
		return v, nil, fmt.Errorf("reading the trace: %w", err)
	}
	v.Action = Pass
	if action == xdpDropAction {
		v.Action = Drop
	}
	for _, counter := range counters {
		switch {
		case counter == counterShort:
			v.Short = true
		case counter == counterMalformed:
			v.Malformed = true
		case counter >= traceReason:
			v.Reason = datapath.Reasons()[bpfobj.PipelineReason(counter-traceReason).Index()].Name
		default:
			v.Matched = append(v.Matched, t.rules[int(counter)])
		}
	}
	if n := len(v.Matched); n > 0 && t.actions[v.Matched[n-1]] != Count {
		v.Rule = v.Matched[n-1]
	}
	return v, opts.DataOut, nil
}

// trace returns the indexes of the counters that have counted the last packet, in their order. If the packet was dropped
// before any rule saw it, there is traceReason plus the reason.
func (t *Tester) trace() ([]uint32, error) {
	traces := t.maps[bpfobj.FilterMapFilterTraces]
	var n uint32
	if err := traces.Lookup(uint32(0), &n); err != nil {
		return nil, err
	}
	if n >= traces.MaxEntries() { // cannot happen: there is room for all rules
		return nil, fmt.Errorf("the packet was counted %d times, the trace has room for %d", n, traces.MaxEntries()-1)
	}
	counters := make([]uint32, n)
	for i := range counters {
		if err := traces.Lookup(uint32(i+1), &counters[i]); err != nil {
			return nil, err
		}
	}
	return counters, nil
}

// traceReason is added to a reason in the trace (FILTER_TRACE_REASON of bpf/filter/count.h). It is above the indexes of all
// counters.
const traceReason = 0x10000

// XDP_DROP and XDP_PASS of linux/bpf.h.
const (
	xdpDropAction = 1
	xdpPassAction = 2
)
