// SPDX-License-Identifier: Apache-2.0

package routeplane

import (
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// inherited are the maps with what the programs need to ask the kernel. The mirror is not among them: a process that starts makes it
// anew.
var inherited = []string{
	bpfobj.PipelineMapRouteStates, bpfobj.PipelineMapRouteVlans, bpfobj.PipelineMapRouteWays, bpfobj.PipelineMapRouteOwn4,
}

// inherit takes over devices, policy and addresses from the data plane that is adopted. Until a process has read them anew, the
// programs ask the kernel for each packet from these devices. Otherwise they would leave those packets to the stack, where
// netfilter may drop them.
func (p *Part) inherit(l *datapath.Loading, inst *datapath.Instance) error {
	if l.Old == nil || OptionsOf(l.Old) == nil || !l.SameLayout(bpfobj.PipelineMapPorts) {
		return nil
	}
	for _, name := range inherited {
		if !l.SameLayout(name) {
			return nil
		}
	}
	var state bpfobj.PipelineRouteState
	if err := l.Old.Map(bpfobj.PipelineMapRouteStates).Lookup(uint32(0), &state); err != nil {
		return fmt.Errorf("reading the IP router's state of %s: %w", l.Old.Name(), err)
	}
	state.Until4, state.Until6 = 0, 0 // there are no routes yet
	if err := inst.Map(bpfobj.PipelineMapRouteStates).Put(uint32(0), state); err != nil {
		return fmt.Errorf("writing the IP router's state of %s: %w", inst.Name(), err)
	}
	for _, name := range inherited[1:] {
		if err := copyMap(inst.Map(name), l.Old.Map(name)); err != nil {
			return fmt.Errorf("copying map %s of %s: %w", name, inst.Name(), err)
		}
	}
	p.former = make(map[int]bpfobj.PipelineRouteDev)
	for _, index := range l.Old.AttachedIndexes() {
		if port, ok := l.Old.Port(index); ok {
			p.former[index] = port.Route
		}
	}
	return nil
}

// copyMap copies all elements of a hash table. One that is deleted meanwhile does no harm.
func copyMap(to, from *ebpf.Map) error {
	var key, value []byte
	it := from.Iterate()
	for it.Next(&key, &value) {
		if err := to.Put(key, value); err != nil {
			return err
		}
	}
	return it.Err()
}
