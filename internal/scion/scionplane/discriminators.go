// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"net/netip"

	"culvert/internal/datapath"
)

// Pair is the addresses of a link, local and remote.
type Pair [2]netip.AddrPort

// Discriminators returns the local discriminators of BFD sessions that were saved with the data plane (Part.Discriminators), by the
// addresses of their links.
func (p Plane) Discriminators() map[Pair]uint32 {
	found := make(map[Pair]uint32)
	s := datapath.Saved[state](p.Instance, Stage, stateVersion)
	if s == nil {
		return found
	}
	for n, l := range s.Config.Links {
		if n < len(s.Discriminators) && s.Discriminators[n] != 0 {
			found[Pair{l.Local, l.Remote}] = s.Discriminators[n]
		}
	}
	return found
}

// keptDiscriminators returns those of a data plane that the links of c have too, in the order of the links, nil for none.
func (p Plane) keptDiscriminators(c Config) (kept []uint32) {
	found := p.Discriminators()
	for n, l := range c.Links {
		if d := found[Pair{l.Local, l.Remote}]; d != 0 {
			if kept == nil {
				kept = make([]uint32, len(c.Links))
			}
			kept[n] = d
		}
	}
	return kept
}
