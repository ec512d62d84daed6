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

// nextHops are the addresses to which a neighbor sends the traffic of each family. The address is invalid for a family that
// cannot be announced.
type nextHops struct{ v4, v6 netip.Addr }

func (h nextHops) of(a netip.Addr) netip.Addr {
	if a.Is4() {
		return h.v4
	}
	return h.v6
}

// nextHops returns the next hops of an established session. If prefixes cannot be announced, problem says why and what to
// do.
func (x *session) nextHops(peer *api.Peer) (hops nextHops, problem string) {
	local, err := netip.ParseAddr(peer.Transport.LocalAddress)
	if err != nil {
		return hops, fmt.Sprintf("the session's local address is not known: %v", err)
	}
	return x.nextHopsFrom(local.Unmap(), func(v4 bool) bool { return accepts(peer, v4) })
}

// nextHopsFrom returns the next hops for a session with a local address, if the neighbor accepts the families for which
// accepts returns true.
func (x *session) nextHopsFrom(local netip.Addr, accepts func(v4 bool) bool) (hops nextHops, problem string) {
	for _, f := range []struct {
		name       string
		v4         bool
		configured netip.Addr
		found      *netip.Addr
	}{{"IPv4", true, x.NextHop4, &hops.v4}, {"IPv6", false, x.NextHop6, &hops.v6}} {
		needed := slices.ContainsFunc(x.prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() == f.v4 })
		switch {
		case !needed:
		case !accepts(f.v4) && x.elsewhere(f.v4) && !f.configured.IsValid():
		case !accepts(f.v4):
			problem = fmt.Sprintf("the neighbor does not take %s prefixes: enable that family in its session", f.name)
		case f.configured.IsValid():
			*f.found = f.configured
		case local.Is4() == f.v4:
			*f.found = local
		default:
			var err error
			if *f.found, err = addressBeside(local, f.v4); err != nil && !x.elsewhere(f.v4) {
				problem = fmt.Sprintf("no next hop for %s prefixes: %v: set it", f.name, err)
			}
		}
	}
	return hops, problem
}

// elsewhere reports whether another neighbor's session may carry a family instead of this one: the family is not that of this
// session's addresses, and another session has addresses of it. One session for both families is as usual as one for each.
func (x *session) elsewhere(v4 bool) bool {
	return x.Address.Is4() != v4 && slices.ContainsFunc(x.neighbors, func(n Neighbor) bool { return n.Address.Is4() == v4 })
}

// carries reports whether the session announces prefixes of a family, or will announce them once it is established. The caller
// holds the lock.
func (x *session) carries(v4 bool) bool {
	configured, found := x.NextHop6, x.hops.v6
	if v4 {
		configured, found = x.NextHop4, x.hops.v4
	}
	return !x.elsewhere(v4) || configured.IsValid() || x.state == established && found.IsValid()
}

// accepts reports whether the neighbor offered a family (RFC 4760). A neighbor that offered none accepts IPv4.
func accepts(peer *api.Peer, v4 bool) bool {
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

// addressBeside returns an address of the other family, which v4 names, on the interface that has the address local.
func addressBeside(local netip.Addr, v4 bool) (netip.Addr, error) {
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
			// For IPv4 the bit of temporary addresses marks secondary ones, which are fine.
			const bad = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED | unix.IFA_F_TEMPORARY
			if addr := at(a); a.LinkIndex == own.LinkIndex && addr.Is4() == v4 && addr.IsGlobalUnicast() && (v4 || a.Flags&bad == 0) {
				return addr, nil
			}
		}
		return netip.Addr{}, fmt.Errorf("the interface with %v has none that could be it", local)
	}
	return netip.Addr{}, fmt.Errorf("no interface has %v", local)
}
