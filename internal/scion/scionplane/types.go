// SPDX-License-Identifier: Apache-2.0

package scionplane

import "net/netip"

// LinkScope is the kind of a SCION link's far end. The values are those of enum link_scope in bpf/scion/maps.h.
type LinkScope uint8

const (
	// ScopeInternal is the link to all hosts of the local AS.
	ScopeInternal LinkScope = iota
	// ScopeSibling is the link to another border router of the local AS.
	ScopeSibling
	// ScopeExternal is the link to a border router of another AS.
	ScopeExternal
)

// LinkType is the relation of the AS to the neighbor at an interface. The values are those of scionproto's
// topology.LinkType and of enum link_type in bpf/scion/maps.h.
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
	// Local is the router's underlay address. Remote is that of the far end, invalid for the internal link.
	Local, Remote netip.AddrPort
}

// Interface is a SCION interface of the AS, at this router or at a sibling.
type Interface struct {
	ID uint16
	// Link is the index in Config.Links of the link that leads to the interface.
	Link int
	Type LinkType
}

// Config is the configuration of the SCION router.
type Config struct {
	// LocalIA is the router's AS.
	LocalIA uint64
	// Links holds every link; Links[0] is the internal one.
	Links      []Link
	Interfaces []Interface
	// PortStart and PortEnd are the first and the last of the dispatched ports. With PortStart > PortEnd there are none.
	PortStart, PortEnd uint16
	// Services are the addresses of the AS's own services, such as its control service. Their punts have limits of their
	// own.
	Services []netip.Addr `json:",omitempty"`
	// BFDMinTTL is the lowest TTL or hop limit that BFD packets are accepted with, 0 for any.
	BFDMinTTL uint8
}

// NextHop is a resolved layer-2 destination.
type NextHop struct {
	// IfIndex is the egress device. It is 0 for a link whose next hop is not resolved, and for an end host that only the
	// kernel has a way to.
	IfIndex        int
	SrcMAC, DstMAC [6]byte
	// MTU is that of the egress device: the length of the largest IP packet, in bytes.
	MTU uint16
	// LinearOnly says that the device accepts no redirected frames of several buffers.
	LinearOnly bool
}
