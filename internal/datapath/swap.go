// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net"
	"slices"

	"culvert/internal/host/pins"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// undoList holds a function for each step that was made, which undoes it. Run calls them, the last one first.
type undoList []func()

func (u undoList) run() {
	for _, step := range slices.Backward(u) {
		step()
	}
}

// swap puts the new program on every interface and calls begin (Options.Begin). If either fails, the interfaces carry again
// what they carried before. The caller holds the edit lock.
func (i *Instance) swap(old *Instance, ports []*net.Interface, begin func(*Instance) error) error {
	undo, err := i.swapLinks(old, ports)
	if err == nil {
		err = i.describeAttached()
	}
	if err == nil {
		_, err = i.FollowBonds() // members may have joined since they were written
	}
	if err == nil && begin != nil {
		i.editing, i.beginning = true, i
		err = begin(i)
		i.editing, i.beginning = false, nil
	}
	if err != nil {
		undo.run()
	}
	return err
}

// describeAttached writes the interfaces anew that take redirected frames only since they carry a program, as those of many drivers do.
func (i *Instance) describeAttached() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.refreshPorts()
}

// swapLinks puts the new program on every interface, atomically where the old one runs. It returns how to undo its steps,
// also those made before an error.
func (i *Instance) swapLinks(old *Instance, ports []*net.Interface) (undo undoList, err error) {
	renames, err := pins.Rename(i.dir, ports)
	undo = append(undo, renames...)
	if err != nil {
		return undo, err
	}
	for _, p := range ports {
		path := pins.LinkPath(i.dir, p.Name)
		if l, err := link.LoadPinnedLink(path, nil); err == nil {
			err := l.Update(i.Entry())
			l.Close()
			if err != nil {
				return undo, fmt.Errorf("swapping the program on %s: %w", p.Name, err)
			}
			if old != nil {
				undo = append(undo, func() { updateLink(path, old.Entry()) })
			}
			continue
		}
		if err := attachLink(i, p, path); err != nil {
			return undo, err
		}
		undo = append(undo, func() { _ = pins.Detach(path) })
	}
	i.detachedFrom, err = i.detachOthers(old, ports, &undo)
	return undo, err
}

// updateLink puts prog on the interface of a pinned link. It is part of an undo, which has nobody to report an error to.
func updateLink(path string, prog *ebpf.Program) {
	if l, err := link.LoadPinnedLink(path, nil); err == nil {
		_ = l.Update(prog)
		l.Close()
	}
}

// detachOthers detaches the program from all interfaces but ports, and returns their names.
func (i *Instance) detachOthers(old *Instance, ports []*net.Interface, undo *undoList) (others []string, err error) {
	for _, path := range pins.Links(i.dir) {
		name := pins.LinkName(path)
		if slices.ContainsFunc(ports, func(p *net.Interface) bool { return p.Name == name }) {
			continue
		}
		p := pins.At(i.dir, path)
		if err := pins.Detach(path); err != nil {
			return others, err
		}
		switch {
		case p.Index == 0: // the interface was deleted, and the program with it
			continue
		case p.Now == "": // in another network namespace, where an undo could not attach again
			others = append(others, name)
			continue
		}
		others = append(others, p.Now)
		if old != nil {
			*undo = append(*undo, func() { _ = attachLink(old, &net.Interface{Index: p.Index, Name: name}, path) })
		}
	}
	return others, nil
}
