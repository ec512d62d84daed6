// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net"
	"slices"

	"culvert/internal/host/pins"
)

// livePins returns the pins of those links that are on an interface, by the name that Attached gives to the interface: the
// one it was attached under, or its present name if another interface has that one now. For an instance of another network
// namespace the present names are unknown.
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

// PortIndexes returns the index of each configured interface, by its configured name. It is the interface that was attached
// under this name, even if it was renamed since. If there is none, it is the interface that has the name now. Names without
// any interface are left out.
func (i *Instance) PortIndexes() map[string]int {
	all := make(map[string]int)
	live := i.livePins()
	byPath := make(map[string]int)
	for _, p := range live {
		byPath[p.Path] = p.Index
	}
	for _, name := range i.meta.Attached {
		p, on := live[name]
		renamed, carries := byPath[pins.LinkPath(i.dir, name)] // another interface has the name, and is not attached yet
		switch {
		case on:
			all[name] = p.Index
		case carries:
			all[name] = renamed
		default:
			if dev, err := net.InterfaceByName(name); err == nil {
				all[name] = dev.Index
			}
		}
	}
	return all
}
