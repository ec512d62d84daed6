// SPDX-License-Identifier: Apache-2.0

// Package lb knows VIPs and their backends: it turns them into what the programs read, checks the backends, and
// says which addresses may be announced.
package lb

import (
	"net/netip"

	"culvert/internal/lb/health"
	"culvert/internal/lb/lbplane"
)

// Protocol is the transport protocol of a VIP.
type Protocol uint8

// Protocols, by their numbers.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

// Service names a VIP: "192.0.2.1:80/tcp", "[2001:db8::1]:443/udp", or "192.0.2.1/tcp" for all ports.
type Service struct {
	Addr     netip.Addr `json:"addr"`
	Port     uint16     `json:"port,omitempty"` // 0 for all ports
	Protocol Protocol   `json:"protocol"`
}

// Hashes are the fields by which new flows are assigned to backends.
const (
	// HashFlow is the client's address and port, the VIP's port and the protocol.
	HashFlow = "flow"
	// HashSource is the client's address. All its flows, and all fragments, go to one backend.
	HashSource = "source"
	// HashSourcePort is the client's address and port. All flows from one port go to one backend, whatever the protocol
	// and the port of the VIP.
	HashSourcePort = "source-port"
)

// What happens to the flows of a backend that fails.
const (
	// FailKeep keeps them there: the backend may come back.
	FailKeep = "keep"
	// FailMove assigns them to other backends, which reset connections that they do not know.
	FailMove = "move"
)

// Encapsulations.
const (
	EncapIPIP = "ipip"
	EncapGUE  = "gue"
	EncapL2   = "l2"
)

// GUEPort is the UDP port of GUE (IANA).
const GUEPort = 6080

// MaxWeight is the largest weight of a backend.
const MaxWeight = 65535

// VIP is a service and its backends.
type VIP struct {
	Service Service `json:"service"`
	// Hash is HashFlow, HashSource or HashSourcePort, OnFailure FailKeep or FailMove.
	Hash      string `json:"hash"`
	OnFailure string `json:"on_failure"`
	// Encap is the encapsulation for backends that are added without one.
	Encap string `json:"encapsulation"`
	// ServerID is the length in bytes of the server ID in QUIC connection IDs, 0 for none. IDConfig is their config rotation.
	ServerID uint8  `json:"quic_server_id,omitempty"`
	IDConfig uint8  `json:"quic_config,omitempty"`
	Check    *Check `json:"check,omitempty"`
	// VLANs are the VLANs on which the VIPs of its address are served, in addition to those that this host has.
	VLANs []uint16 `json:"vlans,omitempty"`
	// Drained is set if the address is not announced because of this VIP.
	Drained bool `json:"drained,omitempty"`
	// File is set if the VIP comes from the configuration file.
	File     bool      `json:"file,omitempty"`
	Backends []Backend `json:"backends"`
	// Offers are what the sources of the configuration file name. Backends has what comes of it.
	Offers []Offers `json:"offers,omitempty"`
	// Number is the number of the VIP in the data plane.
	Number uint32 `json:"number"`
}

// Backend is a backend of a VIP.
type Backend struct {
	Addr netip.Addr `json:"addr"`
	// Encap is EncapIPIP, EncapGUE or EncapL2.
	Encap   string `json:"encapsulation"`
	GUEPort uint16 `json:"gue_port,omitempty"`
	// Weight is its share of new flows, up to MaxWeight. With 0 it gets no new flows and keeps those that it has.
	Weight uint32 `json:"weight"`
	// Drained has the effect of weight 0 while it is set. The configuration file does not change it.
	Drained bool `json:"drained,omitempty"`
	// ServerID is its server ID in QUIC connection IDs, in hexadecimal digits.
	ServerID string `json:"server_id,omitempty"`
	// File is set if the backend comes from the configuration file.
	File bool `json:"file,omitempty"`
	// Offered is the name of the source that the backend comes from, "" for one of the file or made by hand.
	Offered string `json:"offered,omitempty"`
	// ID identifies it in rings and flows.
	ID lbplane.BackendID `json:"id"`
}

// Check is the health check of a VIP's backends.
type Check = health.Check

// State is the configuration of the load balancer of an instance, from the file and by hand. It is stored with the data
// plane, as JSON.
type State struct {
	// Source4 and Source6 are the outer sources of encapsulated packets. The bits behind the prefix come from the hash of
	// the flow. If they are invalid the routing table decides.
	Source4 netip.Prefix `json:"source4"`
	Source6 netip.Prefix `json:"source6"`
	VIPs    []VIP        `json:"vips"`
	// Generations has the generation of the last backend of each number.
	Generations map[uint32]uint32 `json:"generations,omitempty"`
	// Unfinished is set while a process writes the state into the programs' maps. It stays set if the process dies.
	Unfinished bool `json:"unfinished,omitempty"`
}
