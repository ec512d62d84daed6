// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/json"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/bpfobj"
	"culvert/internal/host/pins"
)

// Part is what a stage has in the program: sizes of its maps, constants, what it keeps from program to program, and what
// it writes before a packet comes. The engine loads the program with the parts that it is given, and does not know what
// they do. A part that it is not given is off: its maps are as small as they are declared, its constants zero. Each Attach
// takes parts of its own, and calls their methods in this order.
type Part interface {
	// Name is that of the stage. What the part keeps goes by it.
	Name() string
	// Check refuses options that lead nowhere, before anything is touched.
	Check() error
	// State is what is kept with the data plane, for Saved. Old is the data plane before, nil if there is none.
	State(old *Instance) (State, error)
	// Load sizes the maps of the stage and sets its constants.
	Load(l *Loading) error
	// Shared names the maps of the stage that the new program has in common with the one before, contents and all. Each
	// of them has to fit; all others are the program's own, and fresh.
	Shared(l *Loading) []string
	// Fill writes the maps of the stage. What is written to shared ones is in force for the program before at once.
	Fill(l *Loading, inst *Instance) error
}

// PortFiller is a Part with a part of struct port.
type PortFiller interface {
	// FillPort returns what has to be written of an interface that gets the program, one after the other; the programs may
	// be reading it. It returns nothing if all is well.
	FillPort(inst *Instance, index int, port bpfobj.PipelinePort) ([]bpfobj.PipelinePort, error)
}

// Limiter is a Part that limits its reasons otherwise than by PuntRate and for each interface.
type Limiter interface {
	// Limits has packets a second, by reason. A reason that is no punt has no limit unless it is named.
	Limits() map[bpfobj.PipelineReason]uint64
	// LimitDomains is how many there are, beyond the interfaces, that the stage limits apart.
	LimitDomains() int
}

// Refresher is a Part that follows interfaces.
type Refresher interface {
	// Refresh is called by Instance.Refresh, with the lock of Locked held.
	Refresh(inst *Instance) error
}

// Carrier is a Part with a map that the program before goes on writing, and whose contents the new one is to have although
// it does not share it.
type Carrier interface {
	// Carry takes over what there is, before the new program is on the interfaces, and with last once more behind that.
	// Until then the program before is open. An error of the last time is for nobody.
	Carry(inst *Instance, last bool) error
}

// Metered is a Part with metrics of its own.
type Metered interface {
	// Collectors are for the metrics of the process that has loaded the data plane.
	Collectors(inst *Instance) []prometheus.Collector
}

// State is what a part keeps with the data plane.
type State struct {
	// Version is that of Value's form. One of another version is as good as none.
	Version int
	// Value is written as JSON.
	Value any
}

// savedState is State in the description of an instance.
type savedState struct {
	Version int
	Value   json.RawMessage
}

// Saved returns what a part keeps with the data plane, nil if it is off there, or of another version. Nobody may change it.
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

// save has the description tell what the parts keep.
func (m *meta) save(old *Instance, parts []Part) error {
	m.Stages = make(map[string]savedState)
	for _, p := range parts {
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

// PartOf returns the part that this process has loaded an instance with, the zero value if there is none of that type.
func PartOf[P Part](i *Instance) (part P) {
	for _, p := range i.parts {
		if p, ok := p.(P); ok {
			return p
		}
	}
	return part
}

// Collectors implements stats.CollectorSource: they are those of the parts that this process has loaded the instance with.
func (i *Instance) Collectors() (all []prometheus.Collector) {
	for _, p := range i.parts {
		if m, ok := p.(Metered); ok {
			all = append(all, m.Collectors(i)...)
		}
	}
	return all
}

// Loading is a data plane that is being loaded.
type Loading struct {
	// Old is the data plane before, nil if there is none.
	Old *Instance
	// Spec is the program with its maps, before it is loaded.
	Spec *ebpf.CollectionSpec
	// Unattended is that of Options.
	Unattended bool
	// PortSlots is how many interfaces have counters.
	PortSlots int

	layouts map[string]string
	reused  map[string]*ebpf.Map
}

// Same tells whether the program before has a map, with the same meaning, if perhaps of another size.
func (l *Loading) Same(name string) bool {
	return l.Old != nil && l.Old.maps[name] != nil && l.Old.meta.Layouts[name] == l.layouts[name]
}

// Fits tells whether a map of the program before could be the new one's too.
func (l *Loading) Fits(name string) bool {
	return l.Same(name) && l.Spec.Maps[name].Compatible(l.Old.maps[name]) == nil
}

// Fitting are those maps that fit, AllFit tells whether all do.
func (l *Loading) Fitting(names ...string) (fit []string) {
	for _, name := range names {
		if l.Fits(name) {
			fit = append(fit, name)
		}
	}
	return fit
}

// AllFit is for maps that are filled together.
func (l *Loading) AllFit(names ...string) bool { return len(l.Fitting(names...)) == len(names) }

// Reused tells whether a map is shared with the program before.
func (l *Loading) Reused(name string) bool { return l.reused[name] != nil }

// Resize gives maps so many entries, at least one.
func (l *Loading) Resize(entries map[string]int) {
	for name, n := range entries {
		l.Spec.Maps[name].MaxEntries = uint32(max(n, 1))
	}
}

// Map returns a map of the data plane by its name in bpf/, nil if it has none. It is gone with Close.
func (i *Instance) Map(name string) *ebpf.Map { return i.maps[name] }

// AddMap gives a data plane that is being loaded one more map, which is pinned with the others and is closed with it.
func (i *Instance) AddMap(name string, m *ebpf.Map) { i.maps[name] = m }

// Locked calls what nobody else in this process may do on the instance meanwhile.
func (i *Instance) Locked(f func() error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return f()
}

// Edit has the maps of the data plane changed, by nobody else meanwhile, whatever process they are of. It calls change with
// the data plane that runs: another process may have brought a new generation in since i was opened.
func (i *Instance) Edit(change func(now *Instance) error) error {
	if i.temporary {
		return i.Locked(func() error { return change(i) })
	}
	unlock, err := i.lockEdits()
	if err != nil {
		return err
	}
	defer unlock()
	now, err := i.Now()
	if err != nil {
		return fmt.Errorf("changing %s: %w", i.Name(), err)
	}
	defer now.Close()
	return change(now)
}

// Temporary tells whether the data plane has nothing pinned, and ends with the process that has loaded it.
func (i *Instance) Temporary() bool { return i.temporary }

// Now opens the data plane of this name that runs, for one that is not Temporary: another process may have brought a new
// generation in since i was opened.
func (i *Instance) Now() (*Instance, error) { return openInstance(i.dir) }

// RunningProgram is the program that packets meet first on the interfaces, whoever has put it there; 0 while there is none,
// and for a Temporary one.
func (i *Instance) RunningProgram() ebpf.ProgramID { return pins.Running(i.dir) }

// PortSlot is where parts that keep something for each interface have that of one which the instance has ever been on: a
// number below Loading.PortSlots, which stays.
func (i *Instance) PortSlot(name string) int { return i.meta.Ports[name] }
