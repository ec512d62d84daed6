// SPDX-License-Identifier: Apache-2.0

package datapath

import "github.com/cilium/ebpf"

// Loading is a data plane while it is being loaded, as Part.Load, Part.Shared and Part.Fill see it.
type Loading struct {
	// Old is the data plane that is being adopted, nil if there is none.
	Old *Instance
	// Spec is the pipeline with its maps. Changes count in Part.Load alone: the pipeline is loaded after it.
	Spec *ebpf.CollectionSpec
	// Unattended is Options.Unattended.
	Unattended bool
	// PortSlots is the number of interfaces that have counters (Instance.PortSlot).
	PortSlots int

	layouts map[string]string
	reused  map[string]*ebpf.Map
}

// SameLayout tells whether the old data plane has the map, with keys and values of the same meaning. The size may differ.
func (l *Loading) SameLayout(name string) bool {
	return l.Old != nil && l.Old.maps[name] != nil && l.Old.meta.Layouts[name] == l.layouts[name]
}

// Fits tells whether the new program can share the map with the old one: layout, type, size and flags are the same.
func (l *Loading) Fits(name string) bool {
	return l.SameLayout(name) && l.Spec.Maps[name].Compatible(l.Old.maps[name]) == nil
}

// Fitting returns those of the named maps that fit.
func (l *Loading) Fitting(names ...string) (fit []string) {
	for _, name := range names {
		if l.Fits(name) {
			fit = append(fit, name)
		}
	}
	return fit
}

// AllFit tells whether all of the named maps fit. It is for maps whose contents refer to each other.
func (l *Loading) AllFit(names ...string) bool { return len(l.Fitting(names...)) == len(names) }

// Reused tells whether the new program shares the map with the old one. It is known in Part.Fill.
func (l *Loading) Reused(name string) bool { return l.reused[name] != nil }

// Resize sets the number of entries of maps. A map has at least one entry, also if 0 is asked for.
func (l *Loading) Resize(entries map[string]int) {
	for name, n := range entries {
		l.Spec.Maps[name].MaxEntries = uint32(max(n, 1))
	}
}
