// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"net"
)

// temporaryGeneration is the number of a temporary instance's only generation.
const temporaryGeneration = 1

// attachTemporary is attach without pins. The instance holds its attachments open instead.
func attachTemporary(here space, o Options, c Config, ports []*net.Interface) (*Instance, error) {
	if err := checkForeign("", ports); err != nil {
		return nil, err
	}
	m := newMeta(nil, here, o, c)
	if err := m.assignPorts(ports); err != nil {
		return nil, err
	}
	inst, err := load(nil, m, o, ports)
	if err != nil {
		return nil, err
	}
	inst.temporary = true
	err = inst.watchLosses("", temporaryGeneration, nil)
	if err == nil {
		err = inst.countLosses(temporaryGeneration, func() error {
			for _, p := range ports {
				l, err := attachXDP(inst, p)
				if err != nil {
					return err
				}
				inst.held = append(inst.held, l)
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

// release takes off what a temporary instance has attached.
func (i *Instance) release() error {
	var errs []error
	for _, l := range i.held {
		errs = append(errs, l.Close())
	}
	i.held = nil
	return errors.Join(errs...)
}
