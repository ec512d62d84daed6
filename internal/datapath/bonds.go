// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/vishvananda/netlink"

	"culvert/internal/bpfobj"
	"culvert/internal/host/netdev"
)

/*
The kernel runs the program of a bond on its members, and packets come in by the index of a member. So the map of interfaces has an
entry for each member that leads to the entry of the bond. Members come and go, and the bond changes which of them it uses: a
process that serves the instance follows that (FollowBonds). Packets of a member without an entry go to the kernel.
*/

// bondOf is netdev.BondOf, but for tests on kernels without bonds.
var bondOf = netdev.BondOf

// setMembers makes the entries of the members of bonds, by their indexes, those that the kernel has now. It removes those of members that
// this process has written before and that have left these bonds. The caller holds i.mu unless no other goroutine has the instance.
func (i *Instance) setMembers(bonds []*netdev.Bond) error {
	ports := i.maps[bpfobj.PipelineMapPorts]
	want := make(map[int]bpfobj.PipelinePort)
	of := make(map[int]bool)
	var errs []error
	for _, b := range bonds {
		of[b.Index] = true
		for _, m := range b.Members {
			if !i.HasRoom(m.Index) {
				errs = append(errs, fmt.Errorf("%s, which is a member of %s, has index %d, and there is room up to %d: its packets are left to the kernel "+
					"until the process is started again", m.Name, b.Name, m.Index, ports.MaxEntries()-1))
				continue
			}
			entry := bpfobj.PipelinePort{Dev: uint32(b.Index)}
			if !m.Live {
				entry.Spread = portStandby
			}
			want[m.Index] = entry
		}
	}
	for index, bond := range i.members {
		if _, still := want[index]; !still && of[bond] {
			want[index] = bpfobj.PipelinePort{}
		}
	}
	for _, index := range slices.Sorted(maps.Keys(want)) {
		entry := want[index]
		var now bpfobj.PipelinePort
		if err := ports.Lookup(uint32(index), &now); err != nil {
			errs = append(errs, fmt.Errorf("reading interface %d: %w", index, err))
			continue
		}
		// A member that is an interface of the data plane by itself keeps its entry.
		if now.Slot == 0 && now != entry {
			errs = append(errs, i.writePort(index, entry))
		}
		if entry.Dev == 0 {
			delete(i.members, index)
			continue
		}
		if i.members == nil {
			i.members = make(map[int]int)
		}
		i.members[index] = int(entry.Dev)
	}
	return errors.Join(errs...)
}

// Bonds returns those of the configured interfaces that are bonds, by their configured names, with their members as they are now. It
// is empty if the instance is in another network namespace than the calling thread.
func (i *Instance) Bonds() map[string]*netdev.Bond {
	all, _ := i.readBonds()
	return all
}

// readBonds is Bonds, with the errors of those that could not be read.
func (i *Instance) readBonds() (map[string]*netdev.Bond, error) {
	all := make(map[string]*netdev.Bond)
	if !i.Here() {
		return all, nil
	}
	var errs []error
	indexes := i.PortIndexes()
	for _, name := range slices.Sorted(maps.Keys(indexes)) {
		b, err := bondOf(indexes[name])
		var gone netlink.LinkNotFoundError
		switch {
		case errors.As(err, &gone), errors.Is(err, netlink.ErrDumpInterrupted): // the next look finds out what has changed
		case err != nil:
			errs = append(errs, fmt.Errorf("reading interface %s: %w", name, err))
		case b != nil:
			all[name] = b
		}
	}
	return all, errors.Join(errs...)
}

// FollowBonds writes which members the bonds of the instance have now, and which of them they use. It returns what Bonds returns. An error
// for one member leaves the others to be written, and its text is the same as long as nothing changes.
func (i *Instance) FollowBonds() (map[string]*netdev.Bond, error) {
	bonds, err := i.readBonds()
	i.mu.Lock()
	defer i.mu.Unlock()
	var all []*netdev.Bond
	for _, name := range slices.Sorted(maps.Keys(bonds)) {
		if _, carries := i.Port(bonds[name].Index); carries {
			all = append(all, bonds[name])
		}
	}
	return bonds, errors.Join(err, i.setMembers(all))
}

// HasRoom tells whether an interface with this index can have an entry. The map of interfaces has as many as were thought enough when the
// programs were loaded.
func (i *Instance) HasRoom(index int) bool {
	return index >= 0 && uint64(index) < uint64(i.maps[bpfobj.PipelineMapPorts].MaxEntries())
}

// KnowsMember tells whether the programs treat what comes in by a member of a bond as the bond does now. It is false for a member that has
// joined, or whose state has changed, while no process has followed the bond, and for one without room (HasRoom).
func (i *Instance) KnowsMember(b *netdev.Bond, m netdev.BondMember) bool {
	var entry bpfobj.PipelinePort
	err := i.maps[bpfobj.PipelineMapPorts].Lookup(uint32(m.Index), &entry)
	return err == nil && entry.Slot == 0 && entry.Dev == uint32(b.Index) && (entry.Spread == 0) == m.Live
}

// checkVLANDevice returns an error for a VLAN device, on which the kernel runs programs in generic mode only.
func checkVLANDevice(p *net.Interface) error {
	below, err := netdev.BelowVLAN(p.Index)
	if err != nil || below == "" {
		return err
	}
	return fmt.Errorf("%s is a VLAN device, and in native mode the kernel runs XDP on the device below it: name %s in its place, and the IP router and the load "+
		"balancer take its VLANs too, or use generic mode, in which all stages work on %[1]s", p.Name, below)
}

// checkSoftware returns an error for interfaces that the kernel itself makes, bonds and VLAN devices, if it cannot run the program on them in
// native mode.
func checkSoftware(ports []*net.Interface, generic bool) error {
	for _, p := range ports {
		if generic {
			break
		}
		b, err := netdev.BondOf(p.Index)
		if err != nil {
			return fmt.Errorf("reading interface %s: %w", p.Name, err)
		}
		if err := errors.Join(checkBond(b), checkVLANDevice(p)); err != nil {
			return err
		}
	}
	return nil
}

// checkBond returns an error for a bond on which the kernel runs no program in native mode, with the command that mends it. It returns nil
// for any other interface, and for a bond without members, which get the program as they join.
func checkBond(b *netdev.Bond) error {
	if b == nil {
		return nil
	}
	wrong, command := b.WithoutXDP()
	if wrong != "" {
		return fmt.Errorf("%s: %s: %s, or use generic mode if its speed will do", b.Name, wrong, command)
	}
	for _, m := range b.Members {
		carried, err := netdev.ProgramOn(m.Index)
		if err == nil && carried != 0 {
			return fmt.Errorf("%s, which is a member of %s, carries XDP program %d already: detach that one first ('culvert doctor -i %s' has the command)",
				m.Name, b.Name, carried, m.Name)
		}
	}
	client, err := netdev.Open(netdev.XDPFamily)
	if err != nil {
		return nil // before Linux 6.3: the kernel refuses to attach
	}
	defer client.Close()
	for _, m := range b.Members {
		if acts, known := client.XDPActs(m.Index); known && acts&netdev.ActBasic == 0 {
			return fmt.Errorf("%s, which is a member of %s, does not run XDP in its driver: take it out (ip link set dev %s nomaster), or use generic mode "+
				"if its speed will do", m.Name, b.Name, m.Name)
		}
	}
	return nil
}
