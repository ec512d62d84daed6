// SPDX-License-Identifier: Apache-2.0

// Package sflowplane is what sFlow has in the kernel: programs that sample packets and tell of dropped ones (bpf/core/sflow.h), and
// the buffers through which the process that serves a data plane reads of them.
package sflowplane

import (
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// Name is the name of the part, of its state, and of the form of the objects.
const Name = "sflow"

// MaxHeader is the most bytes of a frame that can be shown (SFLOW_HEADER of bpf/core/sflow.h), and MaxRate the highest rate: the random
// numbers have 32 bits, and each packet is to have its share of them.
const (
	MaxHeader = 256
	MaxRate   = 1 << 24
)

// Options are what the programs do.
type Options struct {
	// Rate samples one packet of so many.
	Rate int
	// Drops is how many dropped packets each CPU tells of in a second at most. 0: none.
	Drops int
	// Header is how many bytes of a frame are shown.
	Header int
}

const stateVersion = 1

// OptionsOf returns the options of a data plane, nil if it does not sample.
func OptionsOf(inst *datapath.Instance) *Options {
	return datapath.Saved[Options](inst, Name, stateVersion)
}

// Part is sFlow's part of a data plane. It is no stage of the pipeline: the programs have its code wherever a packet comes in or goes.
type Part struct {
	Options
	// Buffer is the size of the buffer of each CPU, in bytes.
	Buffer int
	reader *Reader
}

// NewPart returns a part for programs that sample.
func NewPart(o Options) *Part { return &Part{Options: o, Buffer: bufferBytes} }

func init() {
	datapath.RegisterForm(datapath.Form{
		Name:     Name,
		Pipeline: bpfobj.LoadSFlow,
		Front: func(part string) (*ebpf.CollectionSpec, error) {
			if part != "filter" {
				return nil, nil
			}
			return bpfobj.LoadFilterSFlow()
		},
		Maps: []string{bpfobj.SFlowMapSflowCounts, bpfobj.SFlowMapSflowPackets, bpfobj.SFlowMapSflowEvents},
		Constants: []string{
			bpfobj.SFlowVarSflowOn, bpfobj.SFlowVarSflowHeader, bpfobj.SFlowVarSflowDrops, bpfobj.SFlowVarSflowFactor, bpfobj.SFlowVarSflowShift,
		},
	})
}

// Name implements datapath.Part.
func (p *Part) Name() string { return Name }

// Form implements datapath.Formed.
func (p *Part) Form() string { return Name }

// Check implements datapath.Part.
func (p *Part) Check() error {
	switch {
	case p.Rate < 1 || p.Rate > MaxRate:
		return fmt.Errorf("sFlow samples one packet of %d: use 1 to %d", p.Rate, MaxRate)
	case p.Header < 1 || p.Header > MaxHeader:
		return fmt.Errorf("sFlow shows %d bytes of a frame: use 1 to %d", p.Header, MaxHeader)
	case p.Drops < 0:
		return fmt.Errorf("sFlow tells of %d dropped packets a second: use 0 or more", p.Drops)
	}
	return nil
}

// State implements datapath.Part.
func (p *Part) State(*datapath.Instance) (datapath.State, error) {
	return datapath.State{Version: stateVersion, Value: p.Options}, nil
}

// Load implements datapath.Part.
func (p *Part) Load(l *datapath.Loading) error {
	factor, shift := scale(p.Rate)
	return bpfobj.SetVariables(l.Spec, map[string]any{
		bpfobj.SFlowVarSflowOn:     true,
		bpfobj.SFlowVarSflowHeader: uint32(p.Header),
		bpfobj.SFlowVarSflowDrops:  uint32(p.Drops),
		bpfobj.SFlowVarSflowFactor: factor,
		bpfobj.SFlowVarSflowShift:  shift,
	})
}

// Shared implements datapath.Part. The next program counts afresh: it may sample at another rate.
func (p *Part) Shared(*datapath.Loading) []string { return nil }

// Fill implements datapath.Part: it draws for each interface and CPU when the first packet is sampled, and opens the buffers.
func (p *Part) Fill(_ *datapath.Loading, inst *datapath.Instance) error {
	counts := inst.Map(bpfobj.SFlowMapSflowCounts)
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("counting the CPUs: %w", err)
	}
	for slot := range counts.MaxEntries() {
		all := make([]bpfobj.SFlowSflowCount, cpus)
		for cpu := range all {
			n := draw(p.Rate)
			all[cpu] = bpfobj.SFlowSflowCount{Left: n, Drawn: n}
		}
		if err := counts.Put(slot, all); err != nil {
			return fmt.Errorf("drawing the first packets of sFlow: %w", err)
		}
	}
	p.reader, err = openReader(inst, p.Options, p.Buffer)
	return err
}

// TakeReader returns the reader of the samples, once. The caller closes it. It is nil if no program was loaded with this part.
func (p *Part) TakeReader() *Reader {
	r := p.reader
	p.reader = nil
	return r
}

// Close closes the reader if nobody has taken it.
func (p *Part) Close() {
	if r := p.TakeReader(); r != nil {
		r.Close()
	}
}

// Counted are the sums over all interfaces and CPUs.
type Counted struct {
	// Pool are the packets up to the last sample of each interface and CPU, and Samples those of them that were sampled. Lost are the
	// samples for which there was no room, or no process to read them.
	Pool, Samples, Lost uint64
	// Discards are dropped packets, counted if the programs tell of them.
	Discards uint64
}

// ReadCounted reads what the programs of a data plane that samples have counted since they were loaded.
func ReadCounted(inst *datapath.Instance) (c Counted, err error) {
	m := inst.Map(bpfobj.SFlowMapSflowCounts)
	if m == nil {
		return c, fmt.Errorf("data plane %s does not sample", inst.Name())
	}
	for slot := range m.MaxEntries() {
		var all []bpfobj.SFlowSflowCount
		if err := m.Lookup(slot, &all); err != nil {
			return c, fmt.Errorf("reading the samples of %s: %w", inst.Name(), err)
		}
		for _, n := range all {
			c.Pool += n.Pool
			c.Samples += n.Samples
			c.Lost += n.Lost
			c.Discards += n.Discards
		}
	}
	return c, nil
}
