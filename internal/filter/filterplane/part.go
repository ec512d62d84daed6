// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
)

// Stage is the name of the stage.
const Stage = "filter"

// Part is the filter's part of a data plane. All of it is in front of the pipeline. It has no options: the rules are stored
// with the program, and changed by Edit.
type Part struct{}

// NewPart returns the part. The filter that the data plane has, if any, is adopted.
func NewPart() Part { return Part{} }

// Name implements datapath.Part.
func (Part) Name() string { return Stage }

// Check implements datapath.Part.
func (Part) Check() error { return nil }

// State implements datapath.Part.
func (Part) State(*datapath.Instance) (datapath.State, error) { return datapath.State{}, nil }

// Load implements datapath.Part.
func (Part) Load(*datapath.Loading) error { return nil }

// Shared implements datapath.Part.
func (Part) Shared(*datapath.Loading) []string { return nil }

// Fill implements datapath.Part.
func (Part) Fill(*datapath.Loading, *datapath.Instance) error { return nil }

// Rebuild implements datapath.Fronted.
func (Part) Rebuild(old *datapath.Front, on datapath.Behind) (*datapath.Front, error) {
	p, err := planeOf(old)
	if err != nil {
		return nil, err
	}
	if p.state.Filter.empty() {
		return &datapath.Front{}, nil
	}
	layouts, fit, err := p.layoutsFit()
	if err != nil {
		return nil, err
	}
	if !fit {
		return nil, errors.New("the filter was made by another version of culvert, whose sets and counters this one cannot take over: " +
			"write the rules down (culvert filter list), remove them with that version (culvert filter flush --all) and start again")
	}
	state := *p.state
	state.Filter = state.Filter.clone()
	state.Filter.renameInterfaces(on.Renamed)
	state.Layouts = layouts
	next, err := p.next(&state, nil, on)
	if err != nil {
		return nil, err
	}
	return next.front()
}

// NeedsRebuild implements datapath.Fronted. The program knows the interfaces of rules by their indexes, and whether one is a bond.
func (Part) NeedsRebuild(old *datapath.Front, iface string) (bool, error) {
	p, err := planeOf(old)
	if err != nil {
		return false, err
	}
	return p.state.Filter.namesInterface(iface) || netdev.IsBond(iface), nil
}

// Collectors implements datapath.Metered.
func (Part) Collectors(inst *datapath.Instance) []prometheus.Collector {
	return []prometheus.Collector{collector{counter(inst)}}
}
