// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
)

// Why an interface that an instance is to be on does not carry it.
const (
	// PortGone: there is no interface of that name.
	PortGone = "gone"
	// PortReplaced: it was deleted, and there is another one of its name.
	PortReplaced = "replaced"
	// PortDetached: it is there, and the program was taken off it.
	PortDetached = "detached"
)

// Unattached is an interface that an instance was told to be on and is not.
type Unattached struct {
	Interface string `json:"interface"`
	// Why is PortGone, PortReplaced or PortDetached.
	Why string `json:"why"`
}

// Wanted names the interfaces that the instance was told to be on.
func (i *Instance) Wanted() []string { return slices.Sorted(slices.Values(i.meta.Attached)) }

// Unattached lists those of them that do not carry it. Of an instance in another network namespace it is known only that
// an interface was deleted, not whether there is a new one.
func (i *Instance) Unattached() []Unattached {
	var all []Unattached
	if i.temporary {
		return nil
	}
	here := i.Here()
	for _, name := range i.Wanted() {
		path := linkPath(i.dir, name)
		_, err := os.Lstat(path)
		pinned := err == nil
		if pinned && pinnedOn(path) != 0 {
			continue
		}
		u := Unattached{Interface: name, Why: PortDetached}
		switch exists := here && !NoInterface(name); {
		case pinned && exists:
			u.Why = PortReplaced
		case pinned || here && !exists:
			u.Why = PortGone
		}
		all = append(all, u)
	}
	return all
}

// AttachedPorts implements stats.AttachedSource.
func (i *Instance) AttachedPorts() map[string]bool {
	all := make(map[string]bool)
	for _, name := range i.meta.Attached {
		all[name] = true
	}
	for _, u := range i.Unattached() {
		all[u.Interface] = false
	}
	return all
}

// NoInterface tells whether it is certain that no interface of this network namespace has the name.
func NoInterface(name string) bool {
	_, err := netlink.LinkByName(name)
	return errors.As(err, &netlink.LinkNotFoundError{})
}

// AttachPort attaches the instance, which this process serves, to an interface that it was told to be on: one that has
// come only now, or was made again. It goes on with the counters of its name, and rules of the filter for that name
// are for it. One that somebody is just detaching, not deleting, is ErrGone.
func (i *Instance) AttachPort(u Unattached) error {
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
	if err := checkForeign(i.dir, []*net.Interface{p}); err != nil {
		return err
	}
	if room := i.maps[pipelineMapPorts].MaxEntries(); uint32(p.Index) >= room {
		return fmt.Errorf("interface %s has index %d, and there is room up to %d: start the process again, "+
			"which takes over what runs", name, p.Index, room-1)
	}
	path := linkPath(i.dir, name)
	if pinnedOn(path) != 0 {
		return nil // of one that has another name now
	}
	if _, err := os.Lstat(path); err != nil && u.Why == PortReplaced {
		return fmt.Errorf("interface %s: %w", name, ErrGone)
	}
	i.mu.Lock()
	err = i.fillPorts([]*net.Interface{p})
	i.mu.Unlock()
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return i.attachPort(p, path)
}

// attachPort attaches to an interface with the filter in front, whose rules know interfaces by their indexes.
func (i *Instance) attachPort(p *net.Interface, path string) error {
	now, err := openInstance(i.dir)
	if err != nil {
		return fmt.Errorf("attaching to %s: %w", p.Name, err)
	}
	defer now.Close()
	old, err := openFilter(i.dir, runningProgram(i.dir))
	if err != nil {
		return err
	}
	defer old.close()
	if old.prog == nil || old.state.Generation == now.generation && !old.state.Filter.names(p.Name) {
		now.filter = &filterPlane{prog: old.prog}
		old.prog = nil // now closes it
		return attachLink(now, p, path)
	}
	state := *old.state
	state.Generation = now.generation
	next, err := old.next(&state, nil, now, func(name string) (int, bool) {
		if name == p.Name {
			return p.Index, true
		}
		return now.pinnedIndex(name)
	})
	if err == nil {
		err = next.pin()
	}
	if err != nil {
		next.close()
		return fmt.Errorf("attaching to %s: %w", p.Name, err)
	}
	now.filter = next // and closes it
	if err = attachLink(now, p, path); err == nil {
		if err = now.updatePinned(next.prog.prog, old.entry(now)); err != nil {
			_ = detachLink(path)
		}
	}
	if err != nil {
		next.forget()
		return err
	}
	untilUnused()
	next.forgetOthers()
	return nil
}

// names tells whether a rule is for an interface.
func (f *Filter) names(iface string) bool {
	return slices.ContainsFunc(f.Rules, func(r FilterRule) bool { return slices.Contains(r.Interfaces, iface) })
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
// kept of it. What is on no interface then is for AttachPort. The filter is gone: it was in the pins alone.
func (i *Instance) Restore() error {
	dir, err := makeInstanceDir(i.meta.NetNS, i.Name())
	if err != nil {
		return err
	}
	lock, err := lockInstance(dir, i.Name())
	if err != nil {
		return err
	}
	unlock, err := lockEdits(dir)
	if err != nil {
		lock.Close()
		return err
	}
	defer unlock()
	if len(generations(dir)) > 0 {
		lock.Close()
		return fmt.Errorf("another router %s has been attached meanwhile", i.Name())
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	gen, err := i.pinGeneration()
	if err != nil {
		lock.Close()
		removeIfEmpty(dir)
		return err
	}
	number, err := generationNumber(gen)
	if err == nil {
		err = i.watchLosses(gen, number, nil)
	}
	if err == nil {
		err = i.countLosses(number, func() error { return nil })
	}
	if err != nil {
		os.RemoveAll(gen)
		lock.Close()
		removeIfEmpty(dir)
		return err
	}
	i.lock.Close()
	i.lock = lock
	return nil
}

// forgetDeadHops takes next hops by interfaces that are gone from links and hosts that were taken over: what is sent
// there would be lost.
func (i *Instance) forgetDeadHops() {
	dead := make(map[int]bool)
	gone := func(index int) bool {
		if _, asked := dead[index]; !asked {
			_, err := netlink.LinkByIndex(index)
			dead[index] = errors.As(err, &netlink.LinkNotFoundError{})
		}
		return index != 0 && dead[index]
	}
	states, _ := i.LinkStates()
	for n, s := range states {
		if gone(s.NextHop.IfIndex) {
			_ = i.SetLinkNextHop(n, NextHop{})
		}
	}
	var (
		key    [4]uint32
		value  pipelineNextHop
		leaves [][4]uint32
	)
	it := i.maps[pipelineMapScionHosts].Iterate()
	for it.Next(&key, &value) {
		if gone(int(value.Ifindex)) {
			leaves = append(leaves, key)
		}
	}
	for _, key := range leaves {
		_ = i.maps[pipelineMapScionHosts].Delete(key)
	}
}
