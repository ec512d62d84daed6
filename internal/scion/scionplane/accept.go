// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"fmt"
	"slices"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// Accept says by which devices datagrams are taken. The zero value takes none.
type Accept struct {
	// Except turns the list round: by all devices but those.
	Except bool
	// Devices are interface indexes.
	Devices []int
}

// Equal tells whether both take the same. Order counts.
func (a Accept) Equal(b Accept) bool {
	return a.Except == b.Except && slices.Equal(a.Devices, b.Devices)
}

// SetLinkAccept says by which interfaces the programs take datagrams of a link, an index into
// Config.Links. Before it is called the first time they take them by any. The rule stays when the
// process ends.
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

func (p Plane) writeAccept(link int, a Accept) error {
	var named uint64
	for _, index := range a.Devices {
		// What is not among the interfaces has no program to ask.
		if port, ok := p.Port(index); ok {
			named |= 1 << (port.Slot - 1)
		}
	}
	refused := named
	if !a.Except {
		refused = ^named
	}
	if err := p.Map(bpfobj.PipelineMapScionRefused).Put(uint32(link), refused); err != nil {
		return fmt.Errorf("writing the interfaces of link %d of %s: %w", link, p.Name(), err)
	}
	return nil
}

// carryAccept gives a link the rule that the link of its name had in the data plane before.
func (p Plane) carryAccept(old Plane, name string, link int) error {
	if old.Instance == nil || old.Map(bpfobj.PipelineMapScionRefused) == nil {
		return nil
	}
	before := slices.IndexFunc(old.Config().Links, func(l Link) bool { return l.Name == name })
	var refused uint64
	if before < 0 || old.Map(bpfobj.PipelineMapScionRefused).Lookup(uint32(before), &refused) != nil {
		return nil
	}
	if err := p.Map(bpfobj.PipelineMapScionRefused).Put(uint32(link), refused); err != nil {
		return fmt.Errorf("writing the interfaces of link %s of %s: %w", name, p.Name(), err)
	}
	return nil
}
