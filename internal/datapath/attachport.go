// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"culvert/internal/bpfobj"
	"culvert/internal/host/pins"
)

// Wanted names the interfaces that the instance was told to be on.
func (i *Instance) Wanted() []string { return slices.Sorted(slices.Values(i.meta.Attached)) }

// Unattached lists those of them that do not carry it. Of an instance in another network namespace it is known only that
// an interface was deleted, not whether there is a new one.
func (i *Instance) Unattached() []pins.Unattached {
	var all []pins.Unattached
	if i.temporary {
		return nil
	}
	here := i.Here()
	live := i.livePins()
	for _, name := range i.Wanted() {
		if _, on := live[name]; on {
			continue
		}
		path := pins.LinkPath(i.dir, name)
		_, err := os.Lstat(path)
		pinned := err == nil
		u := pins.Unattached{Interface: name, Why: pins.Detached}
		if p := pins.At(i.dir, path); here && pinned {
			u.Renamed, u.Moved = p.Now, p.Index != 0 && p.Now == ""
		}
		switch exists := here && !pins.NoInterface(name); {
		case pinned && exists:
			u.Why = pins.Replaced
		case pinned || here && !exists:
			u.Why = pins.Gone
		}
		all = append(all, u)
	}
	return all
}

// AttachedPorts implements stats.AttachedSource, with the interfaces of its network namespace that carry, or have lost, what
// is attached without a data plane.
func (i *Instance) AttachedPorts() map[string]bool {
	all := pins.Ports(i.meta.NetNS, i.Here())
	for _, name := range i.meta.Attached {
		all[name] = true
	}
	for _, u := range i.Unattached() {
		all[u.Interface] = false
	}
	return all
}

// AttachPort attaches the instance, which this process serves, to an interface that it was told to be on: one that has
// come only now, or was made again. It goes on with the counters of its name, and so does what is in front of it. An interface that had the name before and has another one now goes on carrying the instance. One that
// somebody is just detaching, not deleting, is pins.ErrGone.
func (i *Instance) AttachPort(u pins.Unattached) error {
	name := u.Interface
	if !slices.Contains(i.meta.Attached, name) {
		return fmt.Errorf("router %s was not told to be on %s", i.Name(), name)
	}
	p, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("interface %s does not exist: see 'ip link'", name)
	}
	unlock, err := lockEdits(i.dir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := pins.CheckForeign(i.dir, []*net.Interface{p}); err != nil {
		return err
	}
	if room := i.maps[bpfobj.PipelineMapPorts].MaxEntries(); uint32(p.Index) >= room {
		return fmt.Errorf("interface %s has index %d, and there is room up to %d: start the process again, "+
			"which takes over what runs", name, p.Index, room-1)
	}
	path := pins.LinkPath(i.dir, name)
	if _, on := pins.On(i.dir, p.Index); on {
		return nil // since the caller has looked
	}
	if _, err := os.Lstat(path); err != nil && u.Why == pins.Replaced {
		return fmt.Errorf("interface %s: %w", name, pins.ErrGone)
	}
	i.mu.Lock()
	if err = i.fillPorts([]*net.Interface{p}); err == nil {
		err = i.fillPartsOfPorts([]*net.Interface{p})
	}
	i.mu.Unlock()
	if err != nil {
		return err
	}
	undo, err := pins.MoveAside(i.dir, path)
	if err != nil {
		return err
	}
	if err := i.attachPort(p, path); err != nil {
		undo()
		return err
	}
	return nil
}

// attachPort attaches to an interface with what is in front, which may know interfaces by their indexes.
func (i *Instance) attachPort(p *net.Interface, path string) error {
	now, err := openInstance(i.dir)
	if err != nil {
		return fmt.Errorf("attaching to %s: %w", p.Name, err)
	}
	defer now.Close()
	if err := now.followPort(i.parts, p); err != nil {
		return fmt.Errorf("attaching to %s: %w", p.Name, err)
	}
	if now.fronts, _, err = now.openFronts(); err != nil { // now closes them
		return err
	}
	return attachLink(now, p, path)
}

// Removed tells whether an instance that this process serves was removed by somebody else, as by 'culvert detach --all'.
func (i *Instance) Removed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.lock == nil {
		return false
	}
	mine, err := i.lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(i.dir)
	return errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(mine, there)
}

// Restore pins an instance that was removed again, with the counters, keys, next hops and flows that this process has
// kept of it, and what was in front of it when KeepFronts last looked; fronts is false if it never did. What is on no
// interface then is for AttachPort.
func (i *Instance) Restore() (fronts bool, err error) {
	dir, err := makeInstanceDir(i.meta.NetNS, i.Name())
	if err != nil {
		return false, err
	}
	lock, err := lockInstance(dir, i.Name())
	if err != nil {
		return false, err
	}
	unlock, err := lockEdits(dir)
	if err != nil {
		lock.Close()
		return false, err
	}
	defer unlock()
	if len(generations(dir)) > 0 {
		lock.Close()
		return false, fmt.Errorf("another router %s has been attached meanwhile", i.Name())
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	gen, err := i.pinGeneration()
	if err != nil {
		lock.Close()
		removeIfEmpty(dir)
		return false, err
	}
	number, err := generationNumber(gen)
	if err == nil {
		err = i.watchLosses(gen, number, nil)
	}
	if err == nil {
		err = i.countLosses(number, func() error { return nil })
	}
	if err == nil {
		err = i.kept.pin(dir)
	}
	if err != nil {
		os.RemoveAll(gen)
		lock.Close()
		removeIfEmpty(dir)
		return false, err
	}
	i.lock.Close()
	i.lock = lock
	return i.kept.known, nil
}
