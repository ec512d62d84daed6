// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/api"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// nextHops are where a neighbor is to send the traffic, by family. A family that cannot be announced has none.
type nextHops struct{ v4, v6 netip.Addr }

func (h nextHops) of(a netip.Addr) netip.Addr {
	if a.Is4() {
		return h.v4
	}
	return h.v6
}

// nextHops finds them for an established session. If prefixes that are wanted cannot be announced, problem says why
// and what to do.
func (x *session) nextHops(peer *api.Peer) (hops nextHops, problem string) {
	local, err := netip.ParseAddr(peer.Transport.LocalAddress)
	if err != nil {
		return hops, fmt.Sprintf("the session's local address is not known: %v", err)
	}
	return x.nextHopsFrom(local.Unmap(), func(v4 bool) bool { return takes(peer, v4) })
}

// nextHopsFrom finds them for a local address and the families that the neighbor takes.
func (x *session) nextHopsFrom(local netip.Addr, takes func(v4 bool) bool) (hops nextHops, problem string) {
	for _, f := range []struct {
		name       string
		v4         bool
		configured netip.Addr
		found      *netip.Addr
	}{{"IPv4", true, x.NextHop4, &hops.v4}, {"IPv6", false, x.NextHop6, &hops.v6}} {
		wanted := slices.ContainsFunc(x.wanted, func(p netip.Prefix) bool { return p.Addr().Is4() == f.v4 })
		switch {
		case !wanted:
		case !takes(f.v4) && x.elsewhere(f.v4) && !f.configured.IsValid():
		case !takes(f.v4):
			problem = fmt.Sprintf("the neighbor does not take %s prefixes: enable that family in its session", f.name)
		case f.configured.IsValid():
			*f.found = f.configured
		case local.Is4() == f.v4:
			*f.found = local
		default:
			var err error
			if *f.found, err = beside(local, f.v4); err != nil && !x.elsewhere(f.v4) {
				problem = fmt.Sprintf("no next hop for %s prefixes: %v: set it", f.name, err)
			}
		}
	}
	return hops, problem
}

// elsewhere tells whether a family is not this session's own, and there is a neighbor with a session of its own for it:
// a session of each family that carries that family alone is as usual as one that carries both.
func (x *session) elsewhere(v4 bool) bool {
	return x.Address.Is4() != v4 && slices.ContainsFunc(x.neighbors, func(n Neighbor) bool { return n.Address.Is4() == v4 })
}

// carries tells whether prefixes of a family are to be announced over the session, or might have to be. The caller holds the lock.
func (x *session) carries(v4 bool) bool {
	configured, found := x.NextHop6, x.hops.v6
	if v4 {
		configured, found = x.NextHop4, x.hops.v4
	}
	return !x.elsewhere(v4) || configured.IsValid() || x.state == established && found.IsValid()
}

// takes tells whether the neighbor offered a family (RFC 4760). One that offered none takes IPv4.
func takes(peer *api.Peer, v4 bool) bool {
	offered := false
	for _, c := range peer.State.RemoteCap {
		mp := c.GetMultiProtocol()
		if mp == nil {
			continue
		}
		offered = true
		if mp.Family.Safi == api.Family_SAFI_UNICAST && (mp.Family.Afi == api.Family_AFI_IP) == v4 {
			return true
		}
	}
	return v4 && !offered
}

// beside returns an address of the other family on the interface that has local.
func beside(local netip.Addr, v4 bool) (netip.Addr, error) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("list this machine's addresses: %w", err)
	}
	at := func(a netlink.Addr) netip.Addr {
		addr, _ := netip.AddrFromSlice(a.IP)
		return addr.Unmap()
	}
	for _, own := range all {
		if at(own) != local {
			continue
		}
		for _, a := range all {
			// For IPv4 the bit of temporary addresses says that one is secondary.
			const bad = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED | unix.IFA_F_TEMPORARY
			if addr := at(a); a.LinkIndex == own.LinkIndex && addr.Is4() == v4 && addr.IsGlobalUnicast() && (v4 || a.Flags&bad == 0) {
				return addr, nil
			}
		}
		return netip.Addr{}, fmt.Errorf("the interface with %v has none that could be it", local)
	}
	return netip.Addr{}, fmt.Errorf("no interface has %v", local)
}
