// SPDX-License-Identifier: Apache-2.0

//go:build example

package example

import (
	"bytes"
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// Begin puts the program in front of a data plane that has none yet, or not the one for these options.
func (p *Part) Begin(inst *datapath.Instance) error {
	return inst.EditFront(Name, func(old *datapath.Front, on datapath.Behind) (*datapath.Front, func(bool), error) {
		if bytes.Equal(bytes.TrimRight(old.State, "\x00"), p.state()) {
			return old, nil, nil
		}
		next, err := p.Rebuild(old, on)
		return next, nil, err
	})
}

// state is what the program is loaded for: the end of the tunnel, nil for none.
func (p *Part) state() []byte {
	if p.options == nil || !p.options.Tunnel.IsValid() {
		return nil
	}
	return []byte(p.options.Tunnel.String())
}

// Rebuild implements datapath.Fronted. Nothing of the program before is kept.
func (p *Part) Rebuild(_ *datapath.Front, on datapath.Behind) (*datapath.Front, error) {
	state := p.state()
	if state == nil {
		return &datapath.Front{}, nil
	}
	spec, err := bpfobj.LoadExample()
	if err != nil {
		return nil, err
	}
	end := p.options.Tunnel.As4()
	if err := bpfobj.SetVariables(spec, map[string]any{bpfobj.ExampleVarExampleLocal: bpfobj.Native.Uint32(end[:])}); err != nil {
		return nil, err
	}
	shared := make(map[string]*ebpf.Map) // it counts in the pipeline's counters
	for _, name := range []string{bpfobj.ExampleMapPorts, bpfobj.ExampleMapCounters} {
		shared[name] = on.Inst.Map(name)
		spec.Maps[name].MaxEntries = shared[name].MaxEntries()
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, fmt.Errorf("the end of tunnels: %w", bpfobj.LoadError(err))
	}
	defer coll.Close()
	return &datapath.Front{
		State:    state,
		Prog:     coll.DetachProgram(bpfobj.ExampleProgExampleFront),
		TailCall: coll.DetachMap(bpfobj.ExampleMapExampleRest),
	}, nil
}

// NeedsRebuild implements datapath.Fronted: the program knows no interface.
func (p *Part) NeedsRebuild(*datapath.Front, string) (bool, error) { return false, nil }
