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
	// Asked are the rules that matched, in their order: those that count or limit, then the one that decided.
	Asked []string
	// Reason is why the packet is dropped before any rule sees it, "" for other packets.
	Reason string
	// Short and Malformed tell what Counters would have counted.
	Short, Malformed bool
}

// Tester runs packets through a filter that is attached nowhere and counts nothing of any other. Its limits never
// drop: the rate of packets from a file is nobody's.
type Tester struct {
	names map[int]string // by the place of their counters
	acts  map[string]Action
	prog  *program
	maps  map[string]*ebpf.Map
}

// NewTester loads a filter. Its sets are those of inst; without an instance it may not have any.
func NewTester(inst *datapath.Instance, f Filter) (*Tester, error) {
	sets := make(map[string]*ebpf.Map)
	known := &loaded{}
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
		known = &loaded{Filter: Filter{Sets: p.state.Filter.Sets}, Sets: p.state.Sets}
	}
	f = f.clone()
	f.Sets = known.Filter.Sets
	t, _, err := newTester(known, sets, f)
	return t, err
}

// newTester loads a filter that knows its sets by the numbers of a state, with members in maps, nil for none.
func newTester(known *loaded, sets map[string]*ebpf.Map, f Filter) (*Tester, *loaded, error) {
	f.Services, f.Top = nil, TopOff
	for n := range f.Rules {
		if f.Rules[n].Action == Limit {
			f.Rules[n].Action, f.Rules[n].Rate = Count, nil
		}
	}
	if err := f.Validate(); err != nil {
		return nil, nil, err
	}
	state, err := known.follow(f, nil)
	if err != nil {
		return nil, nil, err
	}
	t := &Tester{names: make(map[int]string), acts: make(map[string]Action)}
	for _, r := range f.Rules {
		t.names[placeRules+2*state.Rules[r.Name]], t.acts[r.Name] = r.Name, r.Action
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
	if t.prog, err = loadProgram(&purpose{steps: steps, tracing: true}, t.maps, nil); err != nil {
		t.Close()
		return nil, nil, err
	}
	return t, state, nil
}

// Close lets go of the tester.
func (t *Tester) Close() {
	closeMaps(t.maps)
	t.prog.close()
}

// Run tells what becomes of a frame that comes in by an interface of this network namespace, or by none that is named in
// a rule if iface is "".
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

// run is Run in other circumstances. It returns the frame as it goes on, too.
func (t *Tester) run(frame []byte, md bpfobj.XDPMD) (v Verdict, out []byte, err error) {
	if err := t.maps[bpfobj.FilterMapFilterTraces].Put(uint32(0), uint32(0)); err != nil {
		return v, nil, fmt.Errorf("clearing the trace: %w", err)
	}
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: md}
	action, err := t.prog.prog.Run(&opts)
	if err != nil {
		return v, nil, fmt.Errorf("running a packet of %d bytes through the filter: %w", len(frame), err)
	}
	places, err := t.trace()
	if err != nil {
		return v, nil, fmt.Errorf("reading the trace: %w", err)
	}
	v.Action = Pass
	if action == xdpDropAction {
		v.Action = Drop
	}
	for _, place := range places {
		switch {
		case place == placeShort:
			v.Short = true
		case place == placeMalformed:
			v.Malformed = true
		case place >= traceReason:
			v.Reason = datapath.Reasons()[bpfobj.PipelineReason(place-traceReason).Index()].Name
		default:
			v.Asked = append(v.Asked, t.names[int(place)])
		}
	}
	if n := len(v.Asked); n > 0 && t.acts[v.Asked[n-1]] != Count {
		v.Rule = v.Asked[n-1]
	}
	return v, opts.DataOut, nil
}

// trace returns the places that the last packet was counted at, in their order.
func (t *Tester) trace() ([]uint32, error) {
	traces := t.maps[bpfobj.FilterMapFilterTraces]
	var n uint32
	if err := traces.Lookup(uint32(0), &n); err != nil {
		return nil, err
	}
	if n >= traces.MaxEntries() { // never: there is room for all rules
		return nil, fmt.Errorf("the packet was counted %d times, of which %d are known", n, traces.MaxEntries()-1)
	}
	places := make([]uint32, n)
	for i := range places {
		if err := traces.Lookup(uint32(i+1), &places[i]); err != nil {
			return nil, err
		}
	}
	return places, nil
}

// traceReason stands above all places, in front of a reason (FILTER_TRACE_REASON of bpf/filter/count.h).
const traceReason = 0x10000

// xdpDropAction is XDP_DROP of linux/bpf.h.
const xdpDropAction = 1
