// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"net/netip"
	"slices"

	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/toobig"
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

// ShortLink is a link whose way takes shorter packets than the topology says.
type ShortLink struct {
	// Link is the link's name, and Remote the far end.
	Link   string
	Remote netip.Addr
	// Topology is the MTU in the topology, and Longest the length of the longest packet that the way takes, both in bytes of the
	// SCION packet.
	Topology, Longest int
	// Fragment says that longer packets are sent in IP fragments.
	Fragment bool
}

// ShortLinks returns the links whose way, by the kernel's route from this network namespace, takes shorter packets than the topology
// says. Those without a route are left out.
func ShortLinks(r *Router, fragment bool) (short []ShortLink) {
	for _, l := range r.Datapath.Links {
		says := r.Control.Topo.MTU()
		switch l.Scope {
		case scionplane.ScopeInternal:
			continue
		case scionplane.ScopeExternal:
			says = 0
			for id, info := range r.Control.Topo.IFInfoMap() {
				if uint16(id) == l.IfID {
					says = uint16(info.MTU)
				}
			}
		}
		p, err := toobig.NewProber(l.Local.Addr())
		if err != nil {
			continue
		}
		if longest, fits := p.Fits(int(says), l.Remote); !fits {
			short = append(short, ShortLink{Link: l.Name, Remote: l.Remote.Addr(), Topology: int(says), Longest: longest, Fragment: fragment})
		}
		p.Close()
	}
	return short
}
