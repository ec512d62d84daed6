// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/bpfobj"
)

// Part is what a stage contributes to a data plane: the sizes of its maps, its constants, the state that it keeps from one
// generation to the next, and what it writes before the first packet comes. A stage whose part is not among Options.Parts
// is off: its maps have the sizes that bpf/ declares, and its constants are zero.
//
// A Part belongs to one call of Attach, which calls the methods in the order of the package comment. It may keep what it
// learns in one method for a later one. A Part may also implement PortFiller, Limiter, Refresher, Adopter, Metered,
// Fronted and Formed.
type Part interface {
	// Name returns the name of the stage. It is the key of the part's state, and for a Fronted part the name of its
	// directory of pins, so that it must not change between versions.
	Name() string
	// Check returns an error if the options of the part are invalid. It must not touch anything.
	Check() error
	// State returns what is stored with the data plane, for Saved to read. Old is the data plane that is being adopted,
	// nil if there is none. All that Load and Fill depend on is in it, but for what the stage's Commit writes anyway: a
	// configuration that is read again with another State needs another program (Instance.Fits).
	State(old *Instance) (State, error)
	// Load sizes the maps of the stage and sets its constants in l.Spec.
	Load(l *Loading) error
	// Shared names those maps of the stage that the new program shares with the old one, contents included. Each of them
	// has to fit (Loading.Fits). All other maps are new and empty.
	Shared(l *Loading) []string
	// Fill writes the maps of the stage before the new program is on any interface. The old program sees what is written
	// to a shared map at once.
	Fill(l *Loading, inst *Instance) error
}

// PortFiller is a Part with members of its own in struct port (bpf/core/port.h).
type PortFiller interface {
	// FillPort returns the values to write for an interface that gets the program, given its index and present value.
	// They are written one after the other, while the programs may be reading: several values let a part change a member
	// only while nothing refers to it. FillPort returns nothing if the present value is right.
	FillPort(inst *Instance, index int, port bpfobj.PipelinePort) ([]bpfobj.PipelinePort, error)
}

// Limiter is a Part that needs other limits than the default, which is PuntRate for each reason to punt, with a limit for
// each interface.
type Limiter interface {
	// Limits returns rates in packets a second. A reason with another verdict than punt has no limit unless it is listed
	// here.
	Limits() map[bpfobj.PipelineReason]uint64
	// LimitDomains returns how many domains the stage limits separately, besides the interfaces (bpf/core/limit.h).
	LimitDomains() int
}

// Refresher is a Part that follows changes of the host's interfaces.
type Refresher interface {
	// Refresh is called by Instance.Refresh, with the lock of Instance.Locked held.
	Refresh(inst *Instance) error
}

// Adopter is a Part with a map that the new program does not share but whose contents it needs, while the old program is
// still writing to it: a table of flows whose size changes.
type Adopter interface {
	// Adopt copies the contents. It is called twice: before the new program is on any interface, and with last set when
	// the old program is on none. The second call copies what was written in between. Its error is ignored, since the new
	// program is in force by then. The old data plane (Loading.Old) is open until the second call has returned.
	Adopt(inst *Instance, last bool) error
}

// Metered is a Part with metrics.
type Metered interface {
	// Collectors returns the collectors that the process which serves the data plane registers.
	Collectors(inst *Instance) []prometheus.Collector
}

// State is what a part stores with the data plane.
type State struct {
	// Version is the version of the format of Value. Saved ignores a state of another version.
	Version int
	// Value is stored as JSON.
	Value any
}

// savedState is State in the description of an instance (meta).
type savedState struct {
	Version int
	Value   json.RawMessage
}

// Saved returns what the part called name has stored with the data plane i: nil if i is nil, if the stage is off there, or
// if the state has another version. The value is shared by all callers and must not be changed.
func Saved[T any](i *Instance, name string, version int) *T {
	if i == nil {
		return nil
	}
	if known, ok := i.saved.Load(name); ok {
		v, _ := known.(*T)
		return v
	}
	raw, ok := i.meta.Stages[name]
	if !ok || raw.Version != version {
		return nil
	}
	v := new(T)
	if json.Unmarshal(raw.Value, v) != nil {
		return nil
	}
	i.saved.Store(name, v)
	return v
}

// PartNames returns the names of the parts that the data plane was loaded with, sorted: of the stages that are on, and of those that
// may get a program in front.
func (i *Instance) PartNames() []string { return slices.Sorted(maps.Keys(i.meta.Stages)) }

// save stores the states of all parts in the description.
func (m *meta) save(old *Instance, parts []Part) error {
	m.Stages = make(map[string]savedState)
	for _, p := range parts {
		if _, ok := p.(Observer); ok {
			continue // it is of no stage
		}
		s, err := p.State(old)
		if err != nil {
			return err
		}
		value, err := json.Marshal(s.Value)
		if err != nil {
			return fmt.Errorf("describing %s of %s: %w", p.Name(), m.Name, err)
		}
		m.Stages[p.Name()] = savedState{s.Version, value}
	}
	return nil
}

// PartOf returns the part of type P that this process has loaded the instance with, or the zero value if there is none.
func PartOf[P Part](i *Instance) (part P) {
	for _, p := range i.parts {
		if p, ok := p.(P); ok {
			return p
		}
	}
	return part
}

// Collectors implements stats.CollectorSource. It returns the collectors of the parts that this process has loaded the
// instance with.
func (i *Instance) Collectors() (all []prometheus.Collector) {
	for _, p := range i.parts {
		if m, ok := p.(Metered); ok {
			all = append(all, m.Collectors(i)...)
		}
	}
	return all
}
