// SPDX-License-Identifier: Apache-2.0

// Package scionpkt builds SCION packets inside whole Ethernet frames, as they arrive at a border
// router, with hop fields that this router accepts. It also damages such frames on purpose.
package scionpkt

import (
	"net/netip"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/private/topology"
)

// Scope says what is at the far end of a link of the router under test.
type Scope uint8

const (
	// Internal is the link to all hosts of the local AS.
	Internal Scope = iota
	// Sibling is the link to another border router of the local AS.
	Sibling
	// External is the link to a border router of another AS.
	External
)

// String gives the scope's name in lower case.
func (s Scope) String() string {
	return [...]string{"internal", "sibling", "external"}[s]
}

// Device is a network interface of the router under test.
type Device struct {
	// IfIndex is the kernel's index of the device. It is opaque here: the caller may set it.
	IfIndex int
	MAC     [6]byte
}

// Link is a UDP/IP association of the router under test.
type Link struct {
	Scope Scope
	// IfID is the SCION interface ID of an external link, 0 otherwise.
	IfID uint16
	// Local is our underlay address. Remote is the far end's, invalid for the internal link.
	Local, Remote netip.AddrPort
	// Device indexes Network.Devices.
	Device int
	// NextHop is the MAC address that leads to Remote. Unused for the internal link.
	NextHop [6]byte
}

// Interface is a SCION interface of the AS, of the router under test or of a sibling.
type Interface struct {
	ID       uint16
	Type     topology.LinkType
	Neighbor addr.IA
	// RemoteID is the interface's ID at the neighbor.
	RemoteID uint16
	// Link indexes Network.Links: the link that leads towards the interface.
	Link int
	// Local and Remote are the ends of the link to the neighbor, at whichever router owns it.
	Local, Remote netip.AddrPort
}

// Host is an end host of the local AS whose next hop is known.
type Host struct {
	Addr netip.Addr
	MAC  [6]byte
}

// Network is the surroundings of one border router: everything that decides what it does with a
// packet. Links[0] is the internal link.
type Network struct {
	IA   addr.IA
	Core bool
	// MTU is the AS-internal one, in bytes.
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
	// PortStart and PortEnd bound the dispatched ports, both included. As in the reference's
	// topology, 0 and 0 mean that no port is dispatched.
	PortStart, PortEnd uint16
	// Now is the Unix time in seconds at which generated packets must be valid.
	Now uint32
	// MaxPacket bounds the SCION packets that Random makes, in bytes. 0 means the default: the
	// reference router's buffers hold no more than 8488 bytes.
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

// Dispatched tells whether an end host receives the UDP port itself. Packets for other ports go
// to port 30041.
func (n *Network) Dispatched(port uint16) bool {
	return port != 0 && n.PortStart <= port && port <= n.PortEnd
}

// owned lists the interfaces of the router under test, others those of its siblings.
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
