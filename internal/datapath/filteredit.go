// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"culvert/internal/host/pins"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Filter returns what the filter of the instance does.
func (i *Instance) Filter() (Filter, error) {
	p, done, err := i.readFilter()
	if err != nil {
		return Filter{}, err
	}
	defer done()
	return p.state.Filter.clone(), nil
}

// How often a reader looks again when somebody else was changing the filter meanwhile.
const (
	filterReadTries = 50
	filterReadPause = 10 * time.Millisecond
)

// readFilter opens the filter in force for reading.
func (i *Instance) readFilter() (p *filterPlane, done func(), err error) {
	if i.temporary {
		if i.filter == nil {
			return &filterPlane{state: &filterState{}}, func() {}, nil
		}
		return i.filter, func() {}, nil
	}
	for range filterReadTries {
		running := pins.Running(i.dir)
		p, err = openFilter(i.dir, running)
		if pins.Running(i.dir) == running && (err == nil || !errors.Is(err, os.ErrNotExist)) {
			break
		}
		if err == nil {
			p.close()
			p, err = nil, fmt.Errorf("the filter of %s changes all the time: try again", i.Name())
		}
		time.Sleep(filterReadPause)
	}
	if err != nil {
		return nil, nil, err
	}
	return p, p.close, nil
}

// EditFilter changes the filter: all of it, or nothing if there is an error. Each packet meets the filter as it was or as
// it is to be. Counters of rules stay with the rules' names. It needs no process that serves the instance, and waits
// for other changes to end.
func (i *Instance) EditFilter(change func(*Filter) error) error {
	return i.EditFilterAndSets(change, nil)
}

// EditFilterAndSets is EditFilter for sets that get other members with the change. They have to be in the filter then,
// and may be of another type than before.
func (i *Instance) EditFilterAndSets(change func(*Filter) error, members map[string]FilterMembers) error {
	return i.Edit(func(now *Instance) error {
		if now.temporary {
			return now.editHeldFilter(change, members)
		}
		old, err := openFilter(now.dir, pins.Running(now.dir))
		if err != nil {
			return err
		}
		defer old.close()
		old.state.Generation = now.generation
		e := filterEdit{old: old, inst: now, ifindex: now.pinnedIndex, update: now.updatePinned, members: members}
		next, err := e.run(change)
		if next != old {
			next.close()
		}
		return err
	})
}

// editHeldFilter is EditFilterAndSets for a temporary instance, which has its filter in its hands.
func (i *Instance) editHeldFilter(change func(*Filter) error, members map[string]FilterMembers) error {
	old := i.filter
	if old == nil {
		old = &filterPlane{state: &filterState{}}
	}
	e := filterEdit{old: old, inst: i, ifindex: i.heldIndex, update: i.updateHeld, members: members}
	next, err := e.run(change)
	if err == nil && next != old {
		i.filter = next
		old.close()
	}
	return err
}

// filterEdit is a change of the filter of an instance.
type filterEdit struct {
	old     *filterPlane
	inst    *Instance
	members map[string]FilterMembers
	ifindex func(name string) (int, bool)
	// update has the links run another program, and the one from before if that fails.
	update func(to, from *ebpf.Program) error
}

// run makes the change and returns what is in force then: the old plane if nothing has changed.
func (e *filterEdit) run(change func(*Filter) error) (*filterPlane, error) {
	old := e.old
	f := old.state.Filter.clone()
	if err := change(&f); err != nil {
		return nil, err
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if err := f.checkMembers(e.members); err != nil {
		return nil, err
	}
	if len(e.members) == 0 && reflect.DeepEqual(f, old.state.Filter.clone()) {
		return old, nil
	}
	layouts, fit, err := old.layoutsFit()
	if err != nil {
		return nil, err
	}
	if !fit {
		return nil, errors.New("the filter was made by another version of culvert: " +
			"attach with this one first, or remove it with 'culvert detach --all'")
	}
	state, err := old.state.follow(f, e.members)
	if err != nil {
		return nil, err
	}
	state.Layouts = layouts
	next, err := old.next(state, e.members, e.inst, e.ifindex)
	if err != nil {
		return nil, err
	}
	if !f.empty() {
		if err := next.pin(); err != nil {
			next.close()
			return nil, err
		}
	}
	if err := e.update(next.entry(e.inst), old.entry(e.inst)); err != nil {
		next.forget()
		next.close()
		return nil, err
	}
	UntilUnused()
	next.forgetOthers()
	next.settle(old.state)
	return next, nil
}

// entry is the program for the links: the filter, or rx itself.
func (p *filterPlane) entry(inst *Instance) *ebpf.Program {
	if p != nil && p.prog != nil {
		return p.prog.prog
	}
	return inst.prog
}

// checkMembers refuses members that are no set's.
func (f *Filter) checkMembers(members map[string]FilterMembers) error {
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

// pinnedIndex gives the index of an interface that carries the instance, by the name it had then.
func (i *Instance) pinnedIndex(name string) (int, bool) {
	path := pins.LinkPath(i.dir, name)
	live := i.livePins()
	for _, p := range live {
		if p.Path == path {
			return p.Index, true
		}
	}
	p, ok := live[name]
	return p.Index, ok
}

// updatePinned swaps the program on all interfaces, or on none.
func (i *Instance) updatePinned(to, from *ebpf.Program) (err error) {
	var done []link.Link
	defer func() {
		for _, l := range done {
			if err != nil {
				_ = l.Update(from)
			}
			l.Close()
		}
	}()
	for _, path := range pins.Links(i.dir) {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return fmt.Errorf("opening %s: %w", path, err)
		}
		if pins.Ifindex(l) == 0 { // its interface is gone
			l.Close()
			continue
		}
		if err := l.Update(to); err != nil {
			l.Close()
			return fmt.Errorf("swapping the program on %s: %w", pins.LinkName(path), err)
		}
		done = append(done, l)
	}
	return nil
}

// heldIndex and updateHeld are the same for a temporary instance.
func (i *Instance) heldIndex(name string) (int, bool) {
	index, ok := i.heldPorts[name]
	return index, ok
}

func (i *Instance) updateHeld(to, from *ebpf.Program) error {
	var done []link.Link
	for _, l := range i.held {
		if pins.Ifindex(l) == 0 { // a tracepoint's
			continue
		}
		if err := l.Update(to); err != nil {
			for _, d := range done {
				_ = d.Update(from)
			}
			return fmt.Errorf("swapping the program: %w", err)
		}
		done = append(done, l)
	}
	return nil
}

// Entry is the program for the interfaces: the filter, or rx itself.
func (i *Instance) Entry() *ebpf.Program {
	if i != nil && i.filter != nil && i.filter.prog != nil {
		return i.filter.prog.prog
	}
	return i.prog
}

// adoptFilter puts the filter of old, which is locked, in front of this generation, which is in a directory of its own.
// The argument before gives the former names of interfaces that have got others.
func (i *Instance) adoptFilter(old *Instance, gen string, indexes map[string]int, before map[string]string) (err error) {
	number, err := generationNumber(gen)
	if err != nil {
		return err
	}
	if old == nil { // what an instance has left that is gone
		(&filterPlane{dir: filepath.Join(i.dir, filterDir)}).forgetOthers()
		return nil
	}
	if old.filter, err = openFilter(i.dir, pins.Running(i.dir)); err != nil {
		return err
	}
	if old.filter.state.Filter.empty() {
		i.filter = &filterPlane{dir: old.filter.dir, state: &filterState{}}
		return nil
	}
	layouts, fit, err := old.filter.layoutsFit()
	if err != nil {
		return err
	}
	if !fit {
		return errors.New("the filter was made by another version of culvert, whose sets and counters this one cannot take over: " +
			"write the rules down (culvert filter list), remove them with that version (culvert filter flush --all) and start again")
	}
	state := *old.filter.state
	state.Filter = state.Filter.clone()
	state.Filter.rename(before)
	state.Generation, state.Layouts = int(number), layouts
	i.filter, err = old.filter.next(&state, nil, i, func(name string) (int, bool) {
		index, ok := indexes[name]
		return index, ok
	})
	if err == nil {
		err = i.filter.pin()
	}
	if err != nil {
		return fmt.Errorf("taking over the filter: %w", err)
	}
	return nil
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
