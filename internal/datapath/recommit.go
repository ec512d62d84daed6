// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"culvert/internal/host/pins"
)

// Fits tells whether Attach with these options would load the program that runs, on the interfaces that it is attached to or
// waits for. It calls State of the parts, and touches nothing.
func (i *Instance) Fits(o Options) (bool, error) {
	for _, p := range o.Parts {
		if err := p.Check(); err != nil {
			return false, err
		}
	}
	if err := o.normalize(); err != nil {
		return false, err
	}
	m, err := newMeta(i, pins.Space{Inode: i.meta.NetNS, Cookie: i.meta.Cookie}, o)
	if err != nil {
		return false, err
	}
	same := func(a, b any) bool {
		x, errX := json.Marshal(a)
		y, errY := json.Marshal(b)
		return errX == nil && errY == nil && bytes.Equal(x, y)
	}
	on := slices.Sorted(slices.Values(o.Interfaces))
	return m.Name == i.meta.Name && m.Generic == i.meta.Generic && m.Unattended == i.meta.Unattended &&
		same(m.Workers, i.meta.Workers) && slices.Equal(m.Fronts, i.meta.Fronts) && slices.Equal(on, i.Configured()) &&
		maps.EqualFunc(m.Stages, i.meta.Stages, func(a, b savedState) bool { return same(a, b) }), nil
}

// Recommit changes maps and programs in front of the instance, which this process serves, while packets flow. It calls begin
// as Attach calls Options.Begin: with the edit lock held, and on an error, what begin has changed in front is as before. The
// handle that begin gets is valid as long as the instance, and need not be closed.
func (i *Instance) Recommit(begin func(*Instance) error) error {
	if err := i.mayChange(); err != nil {
		return err
	}
	unlock, err := lockEdits(i.dir)
	if err != nil {
		return err
	}
	defer unlock()
	// Other goroutines use the instance meanwhile, and must not take the edit lock for theirs.
	h := &Instance{dir: i.dir, meta: i.meta, maps: i.maps, prog: i.prog, parts: i.parts, adopted: true, mu: i.mu, recommitting: true}
	h.editing, h.beginning = true, h
	err = begin(h)
	h.editing, h.beginning = false, nil
	if err != nil {
		return errors.Join(err, h.takeBack())
	}
	if len(h.begun) > 0 {
		WaitForRCU()
	}
	h.settleBegun()
	return nil
}

// mayChange returns an error unless the instance is this process's to change.
func (i *Instance) mayChange() error {
	switch {
	case i.temporary:
		return fmt.Errorf("data plane %s is temporary: its configuration cannot change", i.Name())
	case i.Removed():
		return fmt.Errorf("data plane %s was detached by somebody else: start the process again", i.Name())
	case !i.serves():
		return fmt.Errorf("this process does not serve data plane %s", i.Name())
	}
	return nil
}

// takeBack puts back what was in front before Recommit.
func (i *Instance) takeBack() error {
	var errs []error
	for _, b := range slices.Backward(i.begun) {
		errs = append(errs, i.putBack(b))
		b.giveUp()
		b.back.Close()
	}
	i.begun = nil
	return errors.Join(errs...)
}

// putBack lets packets meet what was there before a change in front.
func (i *Instance) putBack(b begunFront) error {
	all, done, err := i.openFronts()
	if err != nil {
		return err
	}
	defer done()
	at := slices.IndexFunc(all, func(f *Front) bool { return f.name == b.next.name })
	if at < 0 {
		return fmt.Errorf("the %s of %s was changed in the meantime", b.next.name, i.Name())
	}
	return i.swapFront(all[:at], b.back, b.next.entry(all[at+1:].entry(i.prog)))
}
