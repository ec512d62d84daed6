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

// Sockets returns the addresses and ports that the router's UDP sockets are bound to, each once and
// in the order of the links.
func (r *Router) Sockets() []netip.AddrPort {
	var bound []netip.AddrPort
	for _, l := range r.Datapath.Links {
		if !slices.Contains(bound, l.Local) {
			bound = append(bound, l.Local)
		}
	}
	return bound
}
