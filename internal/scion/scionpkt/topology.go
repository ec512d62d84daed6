// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/segment/iface"
	"github.com/scionproto/scion/private/topology"
	jsontopo "github.com/scionproto/scion/private/topology/json"
)

// TopologyJSON returns the network as the text of a topology.json file, which both the reference router and
// culvert read. It has no BFD settings, which the router's own configuration has.
func (n *Network) TopologyJSON() ([]byte, error) {
	t := jsontopo.Topology{
		IA:               n.IA.String(),
		MTU:              n.MTU,
		EndhostPortRange: n.portRange(),
		BorderRouters:    map[string]*jsontopo.BRInfo{},
		ControlService:   services("cs", n.Control),
		DiscoveryService: services("ds", n.Discovery),
	}
	if n.Core {
		t.Attributes = jsontopo.Attributes{jsontopo.AttrCore}
	}
	t.BorderRouters[n.RouterID] = &jsontopo.BRInfo{
		InternalAddr: n.Links[0].Local.String(),
		Interfaces:   map[iface.ID]*jsontopo.BRInterface{},
	}
	for i := range n.Interfaces {
		intf := &n.Interfaces[i]
		name, internal := n.RouterID, n.Links[0].Local
		if link := n.Links[intf.Link]; link.Scope == Sibling {
			name, internal = fmt.Sprintf("sibling-%d", intf.Link), link.Remote
		}
		br := t.BorderRouters[name]
		if br == nil {
			br = &jsontopo.BRInfo{
				InternalAddr: internal.String(),
				Interfaces:   map[iface.ID]*jsontopo.BRInterface{},
			}
			t.BorderRouters[name] = br
		}
		br.Interfaces[iface.ID(intf.ID)] = &jsontopo.BRInterface{
			Underlay: jsontopo.Underlay{
				Provider: "udpip",
				Local:    intf.Local.String(),
				Remote:   intf.Remote.String(),
			},
			IA:         intf.Neighbor.String(),
			LinkTo:     intf.Type.String(),
			MTU:        n.MTU,
			RemoteIfID: iface.ID(intf.RemoteID),
		}
	}
	return json.MarshalIndent(&t, "", "  ")
}

func (n *Network) portRange() string {
	switch {
	case n.PortStart == 0:
		return "-"
	case n.PortStart == 1 && n.PortEnd == 65535:
		return "all"
	default:
		return fmt.Sprintf("%d-%d", n.PortStart, n.PortEnd)
	}
}

func services(prefix string, at []netip.AddrPort) map[string]*jsontopo.ServerInfo {
	m := map[string]*jsontopo.ServerInfo{}
	for i, a := range at {
		m[fmt.Sprintf("%s-%d", prefix, i+1)] = &jsontopo.ServerInfo{Addr: a.String()}
	}
	return m
}

// placeholderMAC returns a made-up, locally administered address.
func placeholderMAC(n int) [6]byte {
	return [6]byte{0x02, 0xcf, 0, 0, byte(n >> 8), byte(n)}
}

// FromTopology reads the network of the given router from the text of a topology.json file. A topology has no
// MAC addresses, devices, hosts or keys. FromTopology makes up MAC addresses, and a device for each link. The
// caller has to set Hosts and Key.
func FromTopology(text []byte, routerID string) (*Network, error) {
	topo, err := topology.RWTopologyFromJSONBytes(text)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	br, ok := topo.BR[routerID]
	if !ok {
		names := make([]string, 0, len(topo.BR))
		for name := range topo.BR {
			names = append(names, name)
		}
		slices.Sort(names)
		return nil, fmt.Errorf("topology: no border router %q (there are %q)", routerID, names)
	}
	n := &Network{
		IA: topo.IA, Core: topo.IsCore, MTU: topo.MTU, RouterID: routerID,
		PortStart: topo.DispatchedPortStart, PortEnd: topo.DispatchedPortEnd,
	}
	n.addLink(Link{Scope: Internal, Local: br.InternalAddr})
	siblings := map[netip.AddrPort]int{}
	ids := make([]iface.ID, 0, len(topo.IFInfoMap))
	for id := range topo.IFInfoMap {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		info := topo.IFInfoMap[id]
		intf := Interface{
			ID: uint16(id), Type: info.LinkType, Neighbor: info.IA, RemoteID: uint16(info.RemoteIfID),
		}
		_, mine := br.IFs[id]
		if intf.Local, err = netip.ParseAddrPort(info.Local); err != nil && mine {
			return nil, fmt.Errorf("topology: interface %d: underlay local: %w", id, err)
		}
		if intf.Remote, err = netip.ParseAddrPort(info.Remote); err != nil && mine {
			return nil, fmt.Errorf("topology: interface %d: underlay remote: %w", id, err)
		}
		switch index, known := siblings[info.InternalAddr]; {
		case mine:
			intf.Link = n.addLink(Link{
				Scope: External, IfID: uint16(id), Local: intf.Local, Remote: intf.Remote,
			})
		case known:
			intf.Link = index
		default:
			intf.Link = n.addLink(Link{
				Scope: Sibling, Local: br.InternalAddr, Remote: info.InternalAddr,
			})
			siblings[info.InternalAddr] = intf.Link
		}
		n.Interfaces = append(n.Interfaces, intf)
	}
	n.Control = serviceAddresses(topo.CS)
	n.Discovery = serviceAddresses(topo.DS)
	return n, nil
}

// addLink appends the link, with a device and MAC addresses of its own, and returns its index.
func (n *Network) addLink(l Link) int {
	index := len(n.Links)
	l.Device = len(n.Devices)
	l.NextHop = placeholderMAC(0x100 + index)
	n.Devices = append(n.Devices, Device{IfIndex: index + 1, MAC: placeholderMAC(index)})
	n.Links = append(n.Links, l)
	return index
}

func serviceAddresses(m topology.IDAddrMap) []netip.AddrPort {
	var at []netip.AddrPort
	for _, a := range m {
		ap := a.SCIONAddress.AddrPort()
		at = append(at, netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()))
	}
	slices.SortFunc(at, netip.AddrPort.Compare)
	return at
}

// foreignIA returns the i-th of a set of ISD-AS numbers without the local one.
func (n *Network) foreignIA(i uint64) addr.IA {
	ia := addr.MustIAFrom(addr.ISD(1+i%3), addr.AS(0xff00_0000_1000+i))
	if ia == n.IA {
		return ia + 1
	}
	return ia
}
