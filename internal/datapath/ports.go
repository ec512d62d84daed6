// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net"
	"slices"

	"culvert/internal/host/pins"
)

// livePins are the links of the instance that are on an interface, by the name that the interface goes by: the one that
// it was attached with, also when it has another one now, as long as no other interface has it. Of an instance in another
// network namespace no more is known than that there is an interface.
func (i *Instance) livePins() map[string]pins.Pin {
	live := make(map[string]pins.Pin)
	if !i.Here() {
		for _, path := range pins.Links(i.dir) {
			if on := pins.Index(path); on != 0 {
				live[pins.LinkName(path)] = pins.Pin{Path: path, Name: pins.LinkName(path), Index: on}
			}
		}
		return live
	}
	for _, p := range pins.Read(i.dir) {
		switch {
		case p.Now == "":
		case p.Name == p.Now, slices.Contains(i.meta.Attached, p.Now),
			p.Aside(), !pins.NoInterface(p.Name):
			live[p.Now] = p
		default:
			live[p.Name] = p
		}
	}
	return live
}

// PortIndexes gives the index of each interface that the instance was told to be on: of the one that carries it for that
// name, whatever that is called now, else of the one that has the name, if there is one.
func (i *Instance) PortIndexes() map[string]int {
	all := make(map[string]int)
	live := i.livePins()
	byPath := make(map[string]int)
	for _, p := range live {
		byPath[p.Path] = p.Index
	}
	for _, name := range i.meta.Attached {
		p, on := live[name]
		before, still := byPath[pins.LinkPath(i.dir, name)] // while another one has the name, and is not attached to yet
		switch {
		case on:
			all[name] = p.Index
		case still:
			all[name] = before
		default:
			if dev, err := net.InterfaceByName(name); err == nil {
				all[name] = dev.Index
			}
		}
	}
	return all
}
