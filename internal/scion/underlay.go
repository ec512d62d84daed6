// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"net/netip"
	"slices"
)

// Underlay returns the router's own underlay addresses and those at the far ends of its links, each
// once and in the order of the links.
func (r *Router) Underlay() (local, remote []netip.Addr) {
	add := func(list []netip.Addr, a netip.Addr) []netip.Addr {
		if !a.IsValid() || slices.Contains(list, a) {
			return list
		}
		return append(list, a)
	}
	for _, l := range r.Datapath.Links {
		local = add(local, l.Local.Addr())
		remote = add(remote, l.Remote.Addr())
	}
	return local, remote
}
