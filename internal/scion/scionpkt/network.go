// SPDX-License-Identifier: Apache-2.0

// Package scionpkt builds SCION packets in Ethernet frames, as they arrive at a border router, with hop
// fields that the router accepts. It also damages such frames on purpose.
package scionpkt

import (
	"net/netip"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/private/topology"
)

// Scope is what is at the far end of a link of the router under test.
type Scope uint8

const (
	// Internal is the link to all hosts of the local AS.
	Internal Scope = iota
	// Sibling is the link to another border router of the local AS.
	Sibling
	// External is the link to a border router of another AS.
	External
)

// String returns the scope's name in lower case.
func (s Scope) String() string {
	return [...]string{"internal", "sibling", "external"}[s]
}

// Device is a network interface of the router under test.
type Device struct {
	// IfIndex is the kernel's index of the device. This package does not use it, so the caller may change it.
	IfIndex int
	MAC     [6]byte
}

// Link is a UDP/IP association of the router under test.
type Link struct {
	Scope Scope
	// IfID is the SCION interface ID of an external link, 0 otherwise.
	IfID uint16
	// Local is the router's underlay address. Remote is that of the far end, invalid for the internal link.
	Local, Remote netip.AddrPort
	// Device indexes Network.Devices.
	Device int
	// NextHop is the MAC address of the next hop to Remote. It is unused for the internal link.
	NextHop [6]byte
}

// Interface is a SCION interface of the AS. It belongs to the router under test or to a sibling.
type Interface struct {
	ID       uint16
	Type     topology.LinkType
	Neighbor addr.IA
	// RemoteID is the interface's ID at the neighbor.
	RemoteID uint16
	// Link indexes Network.Links. It is the interface's own link, or that to the sibling.
	Link int
	// Local and Remote are the underlay addresses of the link to the neighbor, of whichever router owns it.
	Local, Remote netip.AddrPort
}

// Host is an end host of the local AS whose next hop is known.
type Host struct {
	Addr netip.Addr
	MAC  [6]byte
}

// Network is one border router with its links, interfaces, hosts and services: everything that determines
// what it does with a packet. Links[0] is the internal link.
type Network struct {
	IA   addr.IA
	Core bool
	// MTU is the MTU of the AS-internal network in bytes.
	MTU int
	// RouterID is the router's name in the topology file.
	RouterID string
	// Key is the forwarding key, already derived from the AS's master key.
	Key        [16]byte
	Devices    []Device
	Links      []Link
	Interfaces []Interface
	Hosts      []Host
	// Control and Discovery are the AS's services of these kinds.
	Control, Discovery []netip.AddrPort
	// PortStart and PortEnd are the first and the last dispatched port. As in the reference's topology,
	// no port is dispatched if both are 0.
	PortStart, PortEnd uint16
	// Now is the Unix time in seconds at which generated packets must be valid.
	Now uint32
	// MaxPacket bounds the size in bytes of the SCION packets that Random makes. 0 means 8488, the size of
	// the reference router's buffers.
	MaxPacket int
}

// Interface returns the interface with the given ID, or nil.
func (n *Network) Interface(id uint16) *Interface {
	for i := range n.Interfaces {
		if n.Interfaces[i].ID == id {
			return &n.Interfaces[i]
		}
	}
	return nil
}

// Host returns the host with the given address, or nil.
func (n *Network) Host(a netip.Addr) *Host {
	for i := range n.Hosts {
		if n.Hosts[i].Addr == a {
			return &n.Hosts[i]
		}
	}
	return nil
}

// Dispatched reports whether packets for a UDP port go to that port of an end host. Packets for other
// ports go to port 30041.
func (n *Network) Dispatched(port uint16) bool {
	return port != 0 && n.PortStart <= port && port <= n.PortEnd
}

// owned returns the interfaces of the router under test, and those of its siblings.
func (n *Network) owned() (mine, others []*Interface) {
	for i := range n.Interfaces {
		intf := &n.Interfaces[i]
		if n.Links[intf.Link].Scope == External {
			mine = append(mine, intf)
		} else {
			others = append(others, intf)
		}
	}
	return mine, others
}
