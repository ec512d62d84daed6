// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/bpfobj/fold"
)

// Observer is a part that may watch the programs of a data plane at work. It belongs to no stage. While it has a program in front,
// which takes the place of rx, the programs of the other parts are loaded in the form that it gives them.
type Observer interface {
	Fronted
	// Shape returns the object to load in the place of a part's own, and maps for it by their names, given what the observer has in
	// front. The object has all maps, variables and functions of the part's. It is nil if the part's own does.
	Shape(f *Front, part string) (*ebpf.CollectionSpec, map[string]*ebpf.Map, error)
}

// observers make the observers of all data planes, in the order in which packets meet their programs.
var observers []func() Observer

// RegisterObserver makes an observer a part of each data plane that is attached from then on, behind all other parts. It is called
// by init functions.
func RegisterObserver(observer func() Observer) { observers = append(observers, observer) }

// withObservers returns parts with those observers behind them that are not among them.
func withObservers(parts []Part) []Part {
	all := slices.Clone(parts)
	for _, observer := range observers {
		o := observer()
		if !slices.ContainsFunc(all, func(p Part) bool { return p.Name() == o.Name() }) {
			all = append(all, o)
		}
	}
	return all
}

// Shape returns the object to load in the place of a part's own, and maps for it by their names: what the observers want, in the
// form of the data plane. The object is nil if the part's own does.
func (b Behind) Shape(part string) (*ebpf.CollectionSpec, map[string]*ebpf.Map, error) {
	spec, all, err := b.observed(part)
	if err != nil || b.Inst == nil {
		return spec, all, err
	}
	spec, shared, err := b.Inst.shapeFront(part, spec)
	if err != nil {
		return nil, nil, err
	}
	all = maps.Clone(all)
	if all == nil {
		return spec, shared, nil
	}
	maps.Copy(all, shared)
	return spec, all, nil
}

// observed is Shape for the observers alone. It returns nil if there is none in front.
func (b Behind) observed(part string) (*ebpf.CollectionSpec, map[string]*ebpf.Map, error) {
	for _, observer := range observers {
		o := observer()
		if f := b.fronts.of(o.Name()); f != nil && f.Prog != nil {
			return o.Shape(f, part)
		}
	}
	return nil, nil, nil
}

// RebuildFront rebuilds the program that a part has in front of the data plane, if it has one, after an observer has begun or
// ended. It waits for the edit lock.
func (i *Instance) RebuildFront(part Fronted) error {
	return i.EditFront(part.Name(), func(old *Front, on Behind) (*Front, func(bool), error) {
		if old.Prog == nil {
			return old, nil, nil
		}
		next, err := part.Rebuild(old, on)
		return next, nil, err
	})
}

// Variant loads another object of the pipeline, with the maps and the constants of the instance. The object has all maps and
// variables of the pipeline's own; more holds the maps that it has beside them. The caller closes the collection. The kernel runs
// it as soon as somebody puts one of its programs in the place of the instance's.
func (i *Instance) Variant(spec *ebpf.CollectionSpec, more map[string]*ebpf.Map) (*ebpf.Collection, error) {
	own, err := i.LoadPipeline()
	if err != nil {
		return nil, err
	}
	for name, layout := range MapLayouts(own) {
		if i.meta.Layouts[name] != layout {
			return nil, fmt.Errorf("data plane %s was made by another version of culvert: attach with this one first", i.Name())
		}
	}
	if len(i.meta.Workers.CPUs) == 0 {
		delete(spec.Programs, bpfobj.PipelineProgWorker)
	}
	replace := maps.Clone(more)
	if replace == nil {
		replace = make(map[string]*ebpf.Map)
	}
	for name := range own.Maps {
		m := i.mapOf(name)
		ms := spec.Maps[name]
		switch {
		case m == nil || ms == nil:
			return nil, fmt.Errorf("data plane %s has no map %s: attach it again", i.Name(), name)
		case name == constants:
			if err := copyConstants(spec, own, m); err != nil {
				return nil, err
			}
		default:
			ms.Type, ms.Flags, ms.MaxEntries, ms.KeySize, ms.ValueSize = m.Type(), m.Flags(), m.MaxEntries(), m.KeySize(), m.ValueSize()
			replace[name] = m
		}
	}
	coll, err := fold.Load(spec, ebpf.CollectionOptions{MapReplacements: replace})
	if err != nil {
		return nil, bpfobj.LoadError(err)
	}
	return coll, nil
}

// constants is the map of the pipeline's constants.
const constants = ".rodata"

// copyConstants gives the constants of an object the values that they have in m, a map with those of own: all of own's, or those that
// are named.
func copyConstants(to, own *ebpf.CollectionSpec, m *ebpf.Map, only ...string) error {
	var values []byte
	if err := m.Lookup(uint32(0), &values); err != nil {
		return fmt.Errorf("reading the constants: %w", err)
	}
	for name, v := range own.Variables {
		if v.SectionName != constants || len(only) > 0 && !slices.Contains(only, name) {
			continue
		}
		end := int(v.Offset + v.Size())
		if end > len(values) || to.Variables[name] == nil {
			return fmt.Errorf("constant %s is not among those of the program that runs: attach with this version of culvert first", name)
		}
		to.Variables[name].Value = slices.Clone(values[v.Offset:end])
	}
	return nil
}

// SetWorkers gives the workers another program. Packets that wait in their queues are processed by the former one.
func (i *Instance) SetWorkers(worker *ebpf.Program) error {
	if worker == nil {
		if len(i.meta.Workers.CPUs) > 0 {
			return errors.New("the pipeline has workers, and no program for them")
		}
		return nil
	}
	return i.startWorkers(worker)
}
