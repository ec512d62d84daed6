// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"culvert/internal/datapath"
)

// Read returns the rules, sets and services of a data plane's filter.
func Read(inst *datapath.Instance) (Filter, error) {
	p, done, err := read(inst)
	if err != nil {
		return Filter{}, err
	}
	defer done()
	return p.state.Filter.clone(), nil
}

// ByLookup returns how many of the rules are found by lookups, and not tried one after the other.
func ByLookup(inst *datapath.Instance) (int, error) {
	p, done, err := read(inst)
	if err != nil {
		return 0, err
	}
	defer done()
	return p.state.Found, nil
}

// read opens the filter in force for reading. It is valid until done is called.
func read(inst *datapath.Instance) (p *plane, done func(), err error) {
	f, done, err := inst.Front(Stage)
	if err != nil {
		return nil, nil, err
	}
	if p, err = planeOf(f); err != nil {
		done()
		return nil, nil, err
	}
	return p, done, nil
}

// Edit changes the filter of a data plane as a whole or, on an error, not at all. Each packet meets the old filter or the new
// one. The counters of a rule belong to its name. Edit works without a process that serves the instance. It waits for the
// edit lock.
func Edit(inst *datapath.Instance, change func(*Filter) error) error {
	return EditAndSets(inst, change, nil)
}

// EditAndSets is Edit for a change that also replaces the members of sets, given by their names. The changed filter has to
// have these sets. Their type may change.
func EditAndSets(inst *datapath.Instance, change func(*Filter) error, members map[string]Members) error {
	return inst.EditFront(Stage, func(old *datapath.Front, on datapath.Behind) (*datapath.Front, func(bool), error) {
		p, err := planeOf(old)
		if err != nil {
			return nil, nil, err
		}
		next, err := p.edit(change, members, on)
		if err != nil || next == p {
			return old, nil, err
		}
		settle := func(inForce bool) { next.settle(p.state, inForce) }
		f, err := next.front()
		if err != nil {
			settle(false)
			next.close()
		}
		return f, settle, err
	})
}

// edit applies a change and returns the plane that replaces p, or p itself if nothing has changed.
func (p *plane) edit(change func(*Filter) error, members map[string]Members, on datapath.Behind) (*plane, error) {
	f := p.state.Filter.clone()
	if err := change(&f); err != nil {
		return nil, err
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if err := f.checkMembers(members); err != nil {
		return nil, err
	}
	if len(members) == 0 && reflect.DeepEqual(f, p.state.Filter.clone()) {
		return p, nil
	}
	layouts, fit, err := p.layoutsFit()
	if err != nil {
		return nil, err
	}
	if !fit {
		return nil, errors.New("the filter was made by another version of culvert: " +
			"attach with this one first, or remove it with 'culvert detach --all'")
	}
	state, err := p.state.succeed(f, members)
	if err != nil {
		return nil, err
	}
	state.Layouts = layouts
	return p.next(state, members, on)
}

// checkMembers returns an error if f does not have a set of that name and that type for all members.
func (f *Filter) checkMembers(members map[string]Members) error {
	for name, m := range members {
		set := f.set(name)
		if set == nil {
			return fmt.Errorf("members for set %s, which does not exist", name)
		}
		if (m.Prefixes == nil) != set.Endpoints {
			return fmt.Errorf("the members for set %s are of another type than the set", name)
		}
	}
	return nil
}

// namesInterface tells whether a rule is for that interface.
func (f *Filter) namesInterface(iface string) bool {
	return slices.ContainsFunc(f.Rules, func(r Rule) bool { return slices.Contains(r.Interfaces, iface) })
}

// renameInterfaces gives the interfaces of rules their present names. Former maps present names to former ones.
func (f *Filter) renameInterfaces(former map[string]string) {
	present := make(map[string]string)
	for name, old := range former {
		present[old] = name
	}
	for _, r := range f.Rules {
		for n, old := range r.Interfaces {
			if name, ok := present[old]; ok {
				r.Interfaces[n] = name
			}
		}
	}
}
