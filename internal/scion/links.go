// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/scionproto/scion/private/topology"

	"culvert/internal/scion/scionplane"
)

// ownRouter returns the border router of the topology that the TOML file names.
func ownRouter(r *Router, topo topology.Topology) (*topology.BRInfo, error) {
	br, ok := topo.BR(r.ID())
	if !ok {
		names := strings.Join(slices.Sorted(maps.Keys(topo.Writable().BR)), ", ")
		if names == "" {
			names = "no router"
		}
		return nil, badField(r.Path)("general.id", "no router %q in %s, which has %s",
			r.ID(), r.TopologyPath(), names)
	}
	return &br, nil
}

// fillDatapath derives the configuration of the fast path as the reference derives that of its data plane: one link to
// the AS's own hosts, one to each sibling router, and one for each interface of this router.
func (r *Router) fillDatapath() error {
	topo, br := r.Control.Topo, r.Control.BR
	r.Datapath = scionplane.Config{LocalIA: uint64(topo.IA())}
	r.Datapath.PortStart, r.Datapath.PortEnd = r.dispatchedPorts()
	r.Datapath.Services = serviceAddresses(topo.Writable())
	r.addLink(scionplane.Link{Name: "internal", Scope: scionplane.ScopeInternal, Local: unmap(br.InternalAddr)},
		false, "border_routers."+br.Name+".internal_addr")

	remotes := map[netip.AddrPort]int{}
	infos := topo.IFInfoMap()
	for _, id := range slices.Sorted(maps.Keys(infos)) {
		info := infos[id]
		intf := scionplane.Interface{ID: uint16(id), Type: scionplane.LinkType(info.LinkType)}
		var err error
		if _, own := br.IFs[id]; own {
			intf.Link, err = r.externalLink(&info, remotes)
		} else {
			intf.Link, err = r.siblingLink(&info, remotes)
		}
		if err != nil {
			return err
		}
		r.Datapath.Interfaces = append(r.Datapath.Interfaces, intf)
	}
	return nil
}

// serviceAddresses returns the addresses of the AS's own services, sorted, each once.
func serviceAddresses(topo *topology.RWTopology) []netip.Addr {
	found := map[netip.Addr]bool{}
	for _, servers := range []topology.IDAddrMap{topo.CS, topo.DS, topo.HiddenSegmentLookup, topo.HiddenSegmentRegistration} {
		for _, s := range servers {
			found[unmap(s.SCIONAddress.AddrPort()).Addr().WithZone("")] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), netip.Addr.Compare)
}

// addLink adds a link and returns its index. Field is the topology field that holds its local address.
func (r *Router) addLink(l scionplane.Link, bfd bool, field string) int {
	r.Datapath.Links = append(r.Datapath.Links, l)
	r.BFD = append(r.BFD, bfd)
	r.fields = append(r.fields, field)
	return len(r.Datapath.Links) - 1
}

// externalLink adds the link of one of this router's interfaces and returns its index. Remotes maps the remote addresses
// so far to their links. Two links to one remote address are an error, as in the reference, which keeps its links by it.
func (r *Router) externalLink(info *topology.IFInfo, remotes map[netip.AddrPort]int) (int, error) {
	bad := badField(r.TopologyPath())
	field := fmt.Sprintf("border_routers.%s.interfaces.%d.underlay.", info.BRName, info.ID)
	if info.Provider != "udpip" {
		return 0, bad(field+"provider", `%q is not known: write "udpip" or leave it out`, info.Provider)
	}
	local, remote := netip.MustParseAddrPort(info.Local), netip.MustParseAddrPort(info.Remote)
	local, remote = unmap(local), unmap(remote)
	if other, ok := remotes[remote]; ok {
		return 0, bad(field+"remote", "%s is the remote address of link %s already",
			remote, r.Datapath.Links[other].Name)
	}
	bfdOff := r.Config.Router.BFD.Disable
	if info.BFD.Disable != nil {
		bfdOff = *info.BFD.Disable
	}
	link := r.addLink(scionplane.Link{
		Name:       strconv.FormatUint(uint64(info.ID), 10),
		Scope:      scionplane.ScopeExternal,
		IfID:       uint16(info.ID),
		NeighborIA: uint64(info.IA),
		Local:      local,
		Remote:     remote,
	}, !bfdOff, field+"local")
	remotes[remote] = link
	return link, nil
}

// siblingLink returns the index of the link to the router that has the interface. It adds the link the first time.
func (r *Router) siblingLink(info *topology.IFInfo, remotes map[netip.AddrPort]int) (int, error) {
	own := r.Control.BR
	bad := badField(r.TopologyPath())
	field := "border_routers." + info.BRName + ".internal_addr"
	remote := unmap(info.InternalAddr)
	if remote == unmap(own.InternalAddr) {
		return 0, bad(field, "%s is the internal address of %s too", remote, own.Name)
	}
	if remote.Addr().Is4() != own.InternalAddr.Addr().Unmap().Is4() {
		return 0, bad(field, "%s and the address %s of %s are of different IP versions",
			remote, own.InternalAddr, own.Name)
	}
	if link, ok := remotes[remote]; ok {
		if r.Datapath.Links[link].Scope != scionplane.ScopeSibling {
			return 0, bad(field, "%s is the remote address of interface %s too",
				remote, r.Datapath.Links[link].Name)
		}
		return link, nil
	}
	link := r.addLink(scionplane.Link{
		Name:   "sibling->" + info.InternalAddr.String(),
		Scope:  scionplane.ScopeSibling,
		Local:  unmap(own.InternalAddr),
		Remote: remote,
	}, !r.Config.Router.BFD.Disable, "border_routers."+own.Name+".internal_addr")
	remotes[remote] = link
	return link, nil
}

// dispatchedPorts returns the first and the last port that end hosts listen on. For none the first is above the last. The
// TOML file overrides the topology, as in the reference's Connector.SetPortRange; checkTOML has made sure that it sets
// both ports or none.
func (r *Router) dispatchedPorts() (start, end uint16) {
	start, end = r.Control.Topo.PortRange()
	if p := r.Config.Router.DispatchedPortStart; p != nil {
		start = uint16(*p)
	}
	if p := r.Config.Router.DispatchedPortEnd; p != nil {
		end = uint16(*p)
	}
	// In the topology 0 to 0 means no ports.
	if start == 0 && end == 0 {
		return 1, 0
	}
	return start, end
}

// unmap turns an IPv4-mapped address into IPv4, so that equal addresses compare equal.
func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
