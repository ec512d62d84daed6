// SPDX-License-Identifier: Apache-2.0

// Package lb knows VIPs and their backends: it turns them into what the programs read, checks the backends, and
// says which addresses may be announced.
package lb

import (
	"net/netip"

	"culvert/internal/lb/health"
	"culvert/internal/lb/lbplane"
)

// Protocol is that of a VIP.
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

// Hashes say what chooses a backend for a new flow.
const (
	// HashFlow takes the client's address and port, the VIP's port and the protocol.
	HashFlow = "flow"
	// HashSource takes the client's address alone: all its flows, and all fragments, go to one backend.
	HashSource = "source"
	// HashSourcePort takes the client's address and port: what it sends from one port goes to one backend, whatever the
	// protocol and the port of the VIP.
	HashSourcePort = "source-port"
)

// What becomes of the flows of a backend that fails.
const (
	// FailKeep leaves them: the backend may come back.
	FailKeep = "keep"
	// FailMove gives them to other backends, which will reset what they do not know.
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

// VIP is a service and who provides it.
type VIP struct {
	Service Service `json:"service"`
	// Hash is HashFlow, HashSource or HashSourcePort, OnFailure FailKeep or FailMove.
	Hash      string `json:"hash"`
	OnFailure string `json:"on_failure"`
	// Encap is that of backends added without one.
	Encap string `json:"encapsulation"`
	// ServerID is how many bytes of QUIC connection IDs name the server, 0 for none, and IDConfig their config rotation.
	ServerID uint8  `json:"quic_server_id,omitempty"`
	IDConfig uint8  `json:"quic_config,omitempty"`
	Check    *Check `json:"check,omitempty"`
	// VLANs are those that the VIPs of its address answer on beside those of this host.
	VLANs []uint16 `json:"vlans,omitempty"`
	// Drained says that the VIP is no reason to announce its address.
	Drained bool `json:"drained,omitempty"`
	// File says that it comes from the configuration file.
	File     bool      `json:"file,omitempty"`
	Backends []Backend `json:"backends"`
	// Number is that of its ring.
	Number uint32 `json:"number"`
}

// Backend is one provider of a VIP.
type Backend struct {
	Addr netip.Addr `json:"addr"`
	// Encap is EncapIPIP, EncapGUE or EncapL2.
	Encap   string `json:"encapsulation"`
	GUEPort uint16 `json:"gue_port,omitempty"`
	// Weight is its share of new flows, up to MaxWeight; 0 drains it: it keeps the flows it has.
	Weight uint32 `json:"weight"`
	// Drained gives it weight 0 until that is taken back, whatever the configuration file says of Weight.
	Drained bool `json:"drained,omitempty"`
	// ServerID is what connection IDs of QUIC call it, in hexadecimal digits.
	ServerID string `json:"server_id,omitempty"`
	// File says that it comes from the configuration file.
	File bool `json:"file,omitempty"`
	// ID is what rings and flows call it.
	ID lbplane.BackendID `json:"id"`
}

// Check is how the backends of a VIP are asked whether they live.
type Check = health.Check

// State is everything that the load balancer of an instance does. It is kept in the data plane, as JSON.
type State struct {
	// Source4 and Source6 are the outer addresses of encapsulated packets; the bits behind the prefix come from the
	// flow. Invalid ones leave the source to the routing table.
	Source4 netip.Prefix `json:"source4"`
	Source6 netip.Prefix `json:"source6"`
	VIPs    []VIP        `json:"vips"`
	// Generations has the generation of the last backend of each number.
	Generations map[uint32]uint32 `json:"generations,omitempty"`
	// Unfinished says that somebody is writing this into the programs' maps, or has died meanwhile.
	Unfinished bool `json:"unfinished,omitempty"`
}
