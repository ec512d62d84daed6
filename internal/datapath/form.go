// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
)

// Form is a form of the eBPF objects: the same programs, compiled with more code, and with more maps and constants.
type Form struct {
	// Name is stored with the data plane, so that it must not change between versions.
	Name string
	// Pipeline returns the object of the pipeline. It has all maps and variables of the plain one.
	Pipeline func() (*ebpf.CollectionSpec, error)
	// Front returns the object of the program that a part has in front of the pipeline, nil if the part's own does.
	Front func(part string) (*ebpf.CollectionSpec, error)
	// Maps and Constants name what the plain objects do not have. The programs in front share them with the pipeline.
	Maps, Constants []string
}

// Formed is a Part that needs the objects in another form than the plain one. At most one part of a data plane does.
type Formed interface {
	Part
	// Form returns the name of the form, "" for the plain one.
	Form() string
}

var forms []Form

// RegisterForm makes a form known. It is called by init functions.
func RegisterForm(f Form) { forms = append(forms, f) }

// formOf returns the name of the form that parts need.
func formOf(parts []Part) string {
	for _, p := range parts {
		if f, ok := p.(Formed); ok && f.Form() != "" {
			return f.Form()
		}
	}
	return ""
}

// findForm returns a form by its name, nil for the plain one.
func findForm(name string) (*Form, error) {
	if name == "" {
		return nil, nil
	}
	if n := slices.IndexFunc(forms, func(f Form) bool { return f.Name == name }); n >= 0 {
		return &forms[n], nil
	}
	return nil, fmt.Errorf("its programs have the form %s, which this version of culvert does not know", name)
}

// loadPipeline returns the object of the pipeline in a form.
func loadPipeline(form string) (*ebpf.CollectionSpec, error) {
	f, err := findForm(form)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return bpfobj.LoadPipeline()
	}
	return f.Pipeline()
}

// LoadPipeline returns the object of the pipeline from which the instance was loaded.
func (i *Instance) LoadPipeline() (*ebpf.CollectionSpec, error) {
	spec, err := loadPipeline(i.meta.Form)
	if err != nil {
		return nil, fmt.Errorf("data plane %s: %w", i.Name(), err)
	}
	return spec, nil
}

// mapOf returns a map of the instance, also one of global variables, nil if there is none.
func (i *Instance) mapOf(name string) *ebpf.Map {
	if m := i.maps[name]; m != nil {
		return m
	}
	return i.maps[mapPin(name)]
}

// shapeFront gives the object of a program in front the form of the instance, with the instance's values of the constants. spec is nil
// if no observer has an object for the program. It returns the maps that the program shares with the pipeline.
func (i *Instance) shapeFront(part string, spec *ebpf.CollectionSpec) (*ebpf.CollectionSpec, map[string]*ebpf.Map, error) {
	f, err := findForm(i.meta.Form)
	if err != nil || f == nil {
		return spec, nil, err
	}
	if spec == nil {
		if spec, err = f.Front(part); err != nil || spec == nil {
			return nil, nil, err
		}
	}
	own, err := f.Pipeline()
	if err != nil {
		return nil, nil, err
	}
	values := i.mapOf(constants)
	if values == nil {
		return nil, nil, fmt.Errorf("data plane %s has no constants: attach it again", i.Name())
	}
	if err := copyConstants(spec, own, values, f.Constants...); err != nil {
		return nil, nil, err
	}
	shared := make(map[string]*ebpf.Map)
	for _, name := range f.Maps {
		m, ms := i.mapOf(name), spec.Maps[name]
		if m == nil || ms == nil {
			return nil, nil, fmt.Errorf("data plane %s has no map %s: attach it again", i.Name(), name)
		}
		ms.MaxEntries = m.MaxEntries()
		shared[name] = m
	}
	return spec, shared, nil
}
