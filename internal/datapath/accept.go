// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"slices"

	"culvert/internal/bpfobj"
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
func (i *Instance) SetLinkAccept(link int, a Accept) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if link < 0 || link >= len(i.Config().Links) {
		return fmt.Errorf("link %d of %s: there are %d", link, i.Name(), len(i.Config().Links))
	}
	if p := PartOf[*SCIONPart](i); p != nil {
		p.accept[link] = a
	}
	return i.writeAccept(link, a)
}

func (i *Instance) writeAccept(link int, a Accept) error {
	var named uint64
	for _, index := range a.Devices {
		// What is not among the interfaces has no program to ask.
		if port, ok := i.Port(index); ok {
			named |= 1 << (port.Slot - 1)
		}
	}
	refused := named
	if !a.Except {
		refused = ^named
	}
	if err := i.maps[bpfobj.PipelineMapScionRefused].Put(uint32(link), refused); err != nil {
		return fmt.Errorf("writing the interfaces of link %d of %s: %w", link, i.Name(), err)
	}
	return nil
}

// carryAccept gives a link the rule that the link of its name had in the data plane before.
func (i *Instance) carryAccept(old *Instance, name string, link int) error {
	if old == nil || old.maps[bpfobj.PipelineMapScionRefused] == nil {
		return nil
	}
	before := slices.IndexFunc(old.Config().Links, func(l Link) bool { return l.Name == name })
	var refused uint64
	if before < 0 || old.maps[bpfobj.PipelineMapScionRefused].Lookup(uint32(before), &refused) != nil {
		return nil
	}
	if err := i.maps[bpfobj.PipelineMapScionRefused].Put(uint32(link), refused); err != nil {
		return fmt.Errorf("writing the interfaces of link %s of %s: %w", name, i.Name(), err)
	}
	return nil
}
