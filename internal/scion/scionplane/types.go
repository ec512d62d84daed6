// SPDX-License-Identifier: Apache-2.0

package scionplane

import "net/netip"

// LinkScope says what is at the far end of a SCION link. The values are shared with
// enum link_scope in bpf/scion/maps.h.
type LinkScope uint8

const (
	// ScopeInternal is the link to every host of the local AS.
	ScopeInternal LinkScope = iota
	// ScopeSibling is the link to another border router of the local AS.
	ScopeSibling
	// ScopeExternal is the link to a border router of another AS.
	ScopeExternal
)

// LinkType is the business relation of an interface, numbered as scionproto's topology.LinkType
// and as enum link_type in bpf/scion/maps.h.
type LinkType uint8

const (
	LinkUnset LinkType = iota
	LinkCore
	LinkParent
	LinkChild
	LinkPeer
)

// Link is one UDP/IP underlay association of a SCION router.
type Link struct {
	// Name is the value of the "interface" label that the reference router gives to this link's
	// metrics: "internal", the interface ID in decimal, or "sibling->ADDR:PORT".
	Name  string
	Scope LinkScope
	// IfID is the SCION interface ID; 0 for internal and sibling links.
	IfID uint16
	// NeighborIA is the AS at the far end of an external link, 0 otherwise.
	NeighborIA uint64
	// Local is our underlay address. Remote is the far end's, invalid for the internal link.
	Local, Remote netip.AddrPort
}

// Interface is one SCION interface of the AS, ours or a sibling's.
type Interface struct {
	ID uint16
	// Link indexes Config.Links: the link that leads towards the interface.
	Link int
	Type LinkType
}

// Config is what the SCION stage knows at load time.
type Config struct {
	LocalIA uint64
	// Links holds every link; Links[0] is the internal one.
	Links      []Link
	Interfaces []Interface
	// PortStart and PortEnd bound the dispatched ports, both included; PortStart > PortEnd means none.
	PortStart, PortEnd uint16
	// Services are the addresses of the AS's own services, above all of its control service. Their punts are
	// limited apart from those of other hosts.
	Services []netip.Addr `json:",omitempty"`
	// BFDMinTTL is the TTL or hop limit that BFD packets have to come with, 0 for any.
	BFDMinTTL uint8
}

// NextHop is a resolved layer-2 destination.
type NextHop struct {
	// IfIndex is the egress device, 0 when the next hop is not resolved; of an end host, when only the kernel
	// has a way to it.
	IfIndex        int
	SrcMAC, DstMAC [6]byte
	// MTU is the egress device's, in bytes of the IP packet.
	MTU uint16
	// LinearOnly says that the device takes no redirected frames of several buffers.
	LinearOnly bool
}
