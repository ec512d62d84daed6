// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"fmt"
	"slices"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// Accept is the set of devices by which datagrams of a link are accepted. The zero value accepts none.
type Accept struct {
	// Except inverts the set: datagrams are accepted by all devices but Devices.
	Except bool
	// Devices are interface indexes.
	Devices []int
}

// Equal tells whether a and b are the same, with the devices in the same order.
func (a Accept) Equal(b Accept) bool {
	return a.Except == b.Except && slices.Equal(a.Devices, b.Devices)
}

// SetLinkAccept sets the interfaces by which the programs accept datagrams of a link, an index into Config.Links. Until
// the first call they accept them by any. The rule stays when the process ends.
func (p Plane) SetLinkAccept(link int, a Accept) error {
	return p.Locked(func() error {
		if err := p.checkLink(link); err != nil {
			return err
		}
		if part := datapath.PartOf[*Part](p.Instance); part != nil {
			part.accept[link] = a
		}
		return p.writeAccept(link, a)
	})
}

// writeAccept writes the rule of a link as a bit for each interface that is refused.
func (p Plane) writeAccept(link int, a Accept) error {
	var named uint64
	for _, index := range a.Devices {
		// An interface without the program has no slot and needs no bit.
		if port, ok := p.Port(index); ok {
			named |= 1 << (port.Slot - 1)
		}
	}
	refused := named
	if !a.Except {
		refused = ^named
	}
	return p.putRefused(link, refused)
}

// putRefused writes the interfaces that a link refuses.
func (p Plane) putRefused(link int, refused uint64) error {
	if err := p.Map(bpfobj.PipelineMapScionRefused).Put(uint32(link), refused); err != nil {
		return fmt.Errorf("writing the interfaces of link %d of %s: %w", link, p.Name(), err)
	}
	return nil
}

// adoptAccept gives link n, which is l, the rule that the link with the same addresses has in the data plane that is adopted.
func (p Plane) adoptAccept(old Plane, l Link, n int) error {
	if old.Instance == nil || old.Map(bpfobj.PipelineMapScionRefused) == nil {
		return nil
	}
	before := slices.IndexFunc(old.Config().Links, func(o Link) bool { return o.Local == l.Local && o.Remote == l.Remote })
	var refused uint64
	if before < 0 || old.Map(bpfobj.PipelineMapScionRefused).Lookup(uint32(before), &refused) != nil {
		return nil
	}
	if err := p.Map(bpfobj.PipelineMapScionRefused).Put(uint32(n), refused); err != nil {
		return fmt.Errorf("writing the interfaces of link %s of %s: %w", l.Name, p.Name(), err)
	}
	return nil
}
