// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"culvert/internal/bpfobj"
	"culvert/internal/host/netdev"
	"culvert/internal/host/pins"
)

// Configured returns the interfaces that the instance is to be on (Options.Interfaces), sorted.
func (i *Instance) Configured() []string { return slices.Sorted(slices.Values(i.meta.Attached)) }

// Unattached returns those of the configured interfaces that do not carry the program. For an instance of another network
// namespace it tells that an interface was deleted, but not whether another one has its name.
func (i *Instance) Unattached() []pins.Unattached {
	var all []pins.Unattached
	if i.temporary {
		return nil
	}
	here := i.Here()
	live := i.livePins()
	for _, name := range i.Configured() {
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

// AttachedPorts implements stats.AttachedSource. It includes the interfaces of the instance's network namespace that carry,
// or have lost, a program that is attached without a data plane (pins.Ports).
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

// AttachPort attaches the instance, which this process serves, to a configured interface that has appeared or was made
// again. The counters of its name go on, and programs in front are rebuilt if they need it. An interface that was attached
// under this name and was renamed since goes on carrying the instance. The error wraps pins.ErrGone if another process has
// just detached the interface.
func (i *Instance) AttachPort(u pins.Unattached) error {
	name := u.Interface
	if !slices.Contains(i.meta.Attached, name) {
		return fmt.Errorf("data plane %s was not told to be on %s", i.Name(), name)
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
	if err := netdev.CheckEthernet(p); err != nil {
		return err
	}
	if err := checkSoftware([]*net.Interface{p}, i.meta.Generic); err != nil {
		return err
	}
	if room := i.maps[bpfobj.PipelineMapPorts].MaxEntries(); uint32(p.Index) >= room {
		return fmt.Errorf("interface %s has index %d, and there is room up to %d: start the process again, "+
			"which takes over what runs", name, p.Index, room-1)
	}
	path := pins.LinkPath(i.dir, name)
	if _, on := pins.On(i.dir, p.Index); on {
		return nil // another process has attached it meanwhile
	}
	if _, err := os.Lstat(path); err != nil && u.Why == pins.Replaced {
		return fmt.Errorf("interface %s: %w", name, pins.ErrGone)
	}
	i.mu.Lock()
	if err = i.fillPorts([]*net.Interface{p}); err == nil {
		err = i.fillStagePorts([]*net.Interface{p})
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
		return errors.Join(err, i.rebuildFronts(name))
	}
	return i.describeAttached()
}

// rebuildFronts undoes what attachPort has rebuilt: the programs in front that know an interface by this name are for the one
// that carries the instance. The caller holds the edit lock.
func (i *Instance) rebuildFronts(name string) error {
	now, err := openInstance(i.dir)
	if err != nil {
		return err
	}
	defer now.Close()
	return now.rebuildFor(i.parts, name, nil)
}

// attachPort rebuilds the programs in front that know interfaces by their indexes, and attaches to the interface.
func (i *Instance) attachPort(p *net.Interface, path string) error {
	now, err := openInstance(i.dir)
	if err != nil {
		return fmt.Errorf("attaching to %s: %w", p.Name, err)
	}
	defer now.Close()
	index := func(name string) (int, bool) {
		if name == p.Name {
			return p.Index, true
		}
		return now.portIndex(name)
	}
	if err := now.rebuildFor(i.parts, p.Name, index); err != nil {
		return fmt.Errorf("attaching to %s: %w", p.Name, err)
	}
	if now.fronts, _, err = now.openFronts(); err != nil { // now closes them
		return err
	}
	return attachLink(now, p, path)
}

// Removed tells whether another process has removed the instance that this process serves, as 'culvert detach --all' does.
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

// Restore pins a removed instance again, with its counters, keys, next hops and flows, whose maps this process has open, and
// with what was in front of it when KeepFronts last succeeded. Fronts is false if KeepFronts has never succeeded. The
// instance is on no interface then: AttachPort attaches it.
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
		return false, fmt.Errorf("another data plane %s has been attached meanwhile", i.Name())
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
