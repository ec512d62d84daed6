// SPDX-License-Identifier: Apache-2.0

//go:build example

package example

import (
	"fmt"
	"net/netip"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// Name is that of the stage.
const Name = "example"

// Service is what clients send to.
type Service struct {
	Addr  netip.AddrPort
	Proto uint8
}

// Options are what the stage does.
type Options struct {
	// Services has where packets to a service go instead.
	Services map[Service]netip.AddrPort
	// Tunnel is this host's end of a tunnel, the zero value for none.
	Tunnel netip.Addr
}

// Part is the stage's part of a data plane.
type Part struct{ options *Options }

// NewPart turns the stage on, or leaves it off without options.
func NewPart(o *Options) *Part { return &Part{o} }

// Name implements datapath.Part.
func (p *Part) Name() string { return Name }

// Check implements datapath.Part.
func (p *Part) Check() error { return nil }

// State implements datapath.Part. Fill writes the services, so a file that is read again with others needs another program.
func (p *Part) State(*datapath.Instance) (datapath.State, error) {
	if p.options == nil {
		return datapath.State{}, nil
	}
	return datapath.State{Version: 1, Value: fmt.Sprint(*p.options)}, nil
}

// Load implements datapath.Part.
func (p *Part) Load(l *datapath.Loading) error {
	if p.options == nil {
		return nil
	}
	l.Resize(map[string]int{bpfobj.PipelineMapExampleTargets: 2 * len(p.options.Services)})
	return bpfobj.SetVariables(l.Spec, map[string]any{bpfobj.PipelineVarExampleOn: true})
}

// Shared implements datapath.Part: the next program has services of its own, so that they change together.
func (p *Part) Shared(*datapath.Loading) []string { return nil }

// Fill implements datapath.Part.
func (p *Part) Fill(_ *datapath.Loading, inst *datapath.Instance) error {
	if p.options == nil {
		return nil
	}
	targets := inst.Map(bpfobj.PipelineMapExampleTargets)
	for s, to := range p.options.Services {
		key := bpfobj.PipelineExampleService{Port: bpfobj.Wire16(s.Addr.Port()), Proto: uint16(s.Proto)}
		key.Addr.W = bpfobj.AddrWords(s.Addr.Addr())
		address := key
		address.Port = 0 // for packets without ports
		value := bpfobj.PipelineExampleTarget{Port: bpfobj.Wire16(to.Port())}
		value.Addr.W = bpfobj.AddrWords(to.Addr())
		for _, k := range []bpfobj.PipelineExampleService{key, address} {
			if err := targets.Put(k, value); err != nil {
				return fmt.Errorf("writing service %s: %w", s.Addr, err)
			}
		}
	}
	return nil
}
