// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net"

	"culvert/internal/host/pins"

	"github.com/cilium/ebpf/link"
)

// temporaryGeneration is the number of a temporary instance's only generation.
const temporaryGeneration = 1

// attachTemporary is attach without pins. The instance keeps its links open instead.
func attachTemporary(here pins.Space, o Options, ports []*net.Interface) (*Instance, error) {
	if err := pins.CheckForeign("", ports); err != nil {
		return nil, err
	}
	if err := checkSoftware(ports, o.Generic); err != nil {
		return nil, err
	}
	m, err := newMeta(nil, here, o)
	if err != nil {
		return nil, err
	}
	if err := m.assignPorts(o.Interfaces); err != nil {
		return nil, err
	}
	inst, err := load(nil, m, o, ports)
	if err != nil {
		return nil, err
	}
	inst.temporary = true
	inst.heldPorts = indexes(ports)
	err = inst.watchLosses("", temporaryGeneration, nil)
	if err == nil {
		err = inst.countLosses(temporaryGeneration, func() error {
			for _, p := range ports {
				if err := inst.hold(func() (link.Link, error) { return pins.Attach(inst.Entry(), p, inst.meta.Generic) }); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		inst.Close()
		return nil, err
	}
	return inst, nil
}

// hold calls attach, and keeps the link and the function, which Resume calls again.
func (i *Instance) hold(attach func() (link.Link, error)) error {
	l, err := attach()
	if err != nil {
		return err
	}
	i.held = append(i.held, l)
	i.attachments = append(i.attachments, attach)
	return nil
}

// Pause detaches a temporary instance from its interfaces and tracepoints until Resume. Its maps keep their contents.
func (i *Instance) Pause() error { return i.release() }

// Resume attaches a paused instance again. The calling thread has to be in the instance's network namespace.
func (i *Instance) Resume() error {
	for _, attach := range i.attachments[len(i.held):] {
		l, err := attach()
		if err != nil {
			return errors.Join(fmt.Errorf("resuming %s: %w", i.Name(), err), i.release())
		}
		i.held = append(i.held, l)
	}
	return nil
}

// release closes the links of a temporary instance, which detaches its programs.
func (i *Instance) release() error {
	var errs []error
	for _, l := range i.held {
		errs = append(errs, l.Close())
	}
	i.held = nil
	return errors.Join(errs...)
}
