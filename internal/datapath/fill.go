// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/host/netdev"
)

// fillPorts writes the engine's members of struct port for each interface.
func (i *Instance) fillPorts(ports []*net.Interface) error {
	for _, p := range ports {
		var raw bpfobj.PipelinePort // in a map in use, the members that parts have written stay
		if err := i.maps[bpfobj.PipelineMapPorts].Lookup(uint32(p.Index), &raw); err != nil {
			return fmt.Errorf("reading interface %s: %w", p.Name, err)
		}
		raw.Slot = uint32(i.meta.Ports[p.Name]) + 1
		raw.Dev = uint32(p.Index)
		i.describePort(&raw, p)
		if err := i.writePort(p.Index, raw); err != nil {
			return err
		}
		if err := i.fillMembers(p); err != nil {
			return err
		}
	}
	return nil
}

// fillMembers writes the entries of the members of an interface that is a bond.
func (i *Instance) fillMembers(p *net.Interface) error {
	b, err := bondOf(p.Index)
	if err != nil {
		return fmt.Errorf("reading interface %s: %w", p.Name, err)
	}
	if b == nil {
		return nil
	}
	return i.setMembers([]*netdev.Bond{b})
}

// fillStagePorts lets the parts write their members of struct port for each interface.
func (i *Instance) fillStagePorts(ports []*net.Interface) error {
	for _, p := range ports {
		for _, part := range i.parts {
			f, ok := part.(PortFiller)
			if !ok {
				continue
			}
			err := i.changePort(p.Index, func(port bpfobj.PipelinePort) ([]bpfobj.PipelinePort, error) {
				return f.FillPort(i, p.Index, port)
			})
			if err != nil {
				return fmt.Errorf("writing interface %s: %w", p.Name, err)
			}
		}
	}
	return nil
}

// EditPort changes struct port of an interface, given its index, while no other goroutine of this process does. Change gets
// the present value and returns the values to write, as PortFiller.FillPort does. The error wraps ebpf.ErrKeyNotExist if the
// interface does not carry the program.
func (i *Instance) EditPort(index int, change func(port bpfobj.PipelinePort) ([]bpfobj.PipelinePort, error)) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.changePort(index, change)
}

// changePort is EditPort for a caller that holds i.mu.
func (i *Instance) changePort(index int, change func(port bpfobj.PipelinePort) ([]bpfobj.PipelinePort, error)) error {
	port, ok := i.Port(index)
	if !ok {
		return fmt.Errorf("it does not carry the program: %w", ebpf.ErrKeyNotExist)
	}
	steps, err := change(port)
	for _, step := range steps {
		if err == nil {
			err = i.writePort(index, step)
		}
	}
	return err
}

// Port returns struct port of an interface, given its index. It is false if the interface does not carry the program.
func (i *Instance) Port(index int) (port bpfobj.PipelinePort, ok bool) {
	err := i.maps[bpfobj.PipelineMapPorts].Lookup(uint32(index), &port)
	return port, err == nil && port.Slot != 0
}

func (i *Instance) writePort(index int, port bpfobj.PipelinePort) error {
	if err := i.maps[bpfobj.PipelineMapPorts].Put(uint32(index), port); err != nil {
		return fmt.Errorf("writing interface %d: %w", index, err)
	}
	return nil
}

// describePort writes what the kernel says of an interface: the MAC address, which frames can be redirected to it, and what a worker's
// queue would lose of those that come in.
func (i *Instance) describePort(raw *bpfobj.PipelinePort, p *net.Interface) {
	raw.Spread = i.spreadFlags(p.Name)
	xdp, err := netdev.Open(netdev.XDPFamily)
	if err == nil {
		defer xdp.Close()
	}
	egress := xdp.Egress(p.Index, i.meta.Generic)
	raw.Xmit = bpfobj.Flag(!egress.None)
	if egress.LinearOnly {
		raw.Spread |= portLinear
	}
	if len(p.HardwareAddr) == 6 {
		for n := range raw.Mac {
			raw.Mac[n] = bpfobj.Native.Uint16(p.HardwareAddr[2*n:])
		}
	}
}

// refreshPorts writes anew the interfaces whose MAC address or driver features have changed. An error for one of them leaves the others to
// be written. The text of the error is the same as long as nothing changes.
func (i *Instance) refreshPorts() error {
	var errs []error
	indexes := i.PortIndexes()
	for _, name := range slices.Sorted(maps.Keys(indexes)) {
		if err := i.refreshPort(indexes[name]); err != nil {
			errs = append(errs, fmt.Errorf("writing interface %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (i *Instance) refreshPort(index int) error {
	p, err := net.InterfaceByIndex(index)
	if err != nil {
		return nil // deleted; its counters stay
	}
	old, carries := i.Port(index)
	if !carries {
		return nil // another interface has the name now
	}
	raw := old
	if i.describePort(&raw, p); raw == old {
		return nil
	}
	return i.maps[bpfobj.PipelineMapPorts].Put(uint32(index), raw)
}
