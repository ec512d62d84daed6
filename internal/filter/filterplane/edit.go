// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"culvert/internal/datapath"
)

// Read returns what the filter of a data plane does.
func Read(inst *datapath.Instance) (Filter, error) {
	p, done, err := read(inst)
	if err != nil {
		return Filter{}, err
	}
	defer done()
	return p.state.Filter.clone(), nil
}

// read opens the filter in force for reading.
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

// Edit changes the filter of a data plane: all of it, or nothing if there is an error. Each packet meets the filter as it
// was or as it is to be. Counters of rules stay with the rules' names. It needs no process that serves the instance, and
// waits for other changes to end.
func Edit(inst *datapath.Instance, change func(*Filter) error) error {
	return EditAndSets(inst, change, nil)
}

// EditAndSets is Edit for sets that get other members with the change. They have to be in the filter then, and may be of
// another type than before.
func EditAndSets(inst *datapath.Instance, change func(*Filter) error, members map[string]Members) error {
	return inst.EditFront(Stage, func(old *datapath.Front, on datapath.Behind) (*datapath.Front, func(), error) {
		p, err := planeOf(old)
		if err != nil {
			return nil, nil, err
		}
		next, err := p.edit(change, members, on)
		if err != nil || next == p {
			return old, nil, err
		}
		f, err := next.front()
		return f, func() { next.settle(p.state) }, err
	})
}

// edit makes a change and returns what is to be in force: p itself if nothing has changed.
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
	state, err := p.state.follow(f, members)
	if err != nil {
		return nil, err
	}
	state.Layouts = layouts
	return p.next(state, members, on)
}

// checkMembers refuses members that are no set's.
func (f *Filter) checkMembers(members map[string]Members) error {
	for name, m := range members {
		set := f.set(name)
		if set == nil {
			return fmt.Errorf("members for set %s, which is not there", name)
		}
		if (m.Prefixes == nil) != set.Endpoints {
			return fmt.Errorf("set %s gets members of another type than its own", name)
		}
	}
	return nil
}

// names tells whether a rule is for an interface.
func (f *Filter) names(iface string) bool {
	return slices.ContainsFunc(f.Rules, func(r Rule) bool { return slices.Contains(r.Interfaces, iface) })
}

// rename follows interfaces that have got other names.
func (f *Filter) rename(before map[string]string) {
	now := make(map[string]string)
	for name, old := range before {
		now[old] = name
	}
	for _, r := range f.Rules {
		for n, name := range r.Interfaces {
			if to, ok := now[name]; ok {
				r.Interfaces[n] = to
			}
		}
	}
}
