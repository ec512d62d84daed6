// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"net"
	"net/netip"
	"time"

	"culvert/internal/lb"
	"culvert/internal/lb/bgpstate"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/peerstate"
	"culvert/internal/lb/sourcestate"
)

// States of a VIP.
const (
	Active = "active"
	// Drained is the state of a VIP that is not announced.
	Drained = "drained"
	// NoBackend is the state of a VIP all of whose backends have weight 0.
	NoBackend = "no backend"
	// Down is the state of a VIP whose backends cannot be used.
	Down = "down"
)

// Report is the output of 'culvert lb show -j'. Later versions may add fields, but never rename them.
type Report struct {
	Router     string   `json:"router"`
	NetNS      uint32   `json:"netns"`
	Interfaces []string `json:"interfaces"`
	Served     bool     `json:"served"`
	RingSize   int      `json:"ring_size"`
	// SeedID identifies the seed. It is the same on all machines with the same seed.
	SeedID    string    `json:"seed_id"`
	FlowTable FlowTable `json:"flow_table"`
	// BGP has the BGP sessions of the process, none without [lb.bgp].
	BGP []bgpstate.Session `json:"bgp"`
	// BGPKnown is false if the announcements of the process are not known. BGP and AnnouncedTo are then empty.
	BGPKnown bool `json:"bgp_known"`
	// Peers is the state of the exchange of flows with other load balancers, left out without [lb.peers].
	Peers *peerstate.State `json:"peers,omitempty"`
	VIPs  []VIP            `json:"vips"`
}

// FlowTable has the size and the use of the flow table.
type FlowTable struct {
	// Flows is the number of flows that it is made for, Used an estimate of the number in it.
	Flows  int    `json:"flows"`
	Used   uint64 `json:"used"`
	Memory uint64 `json:"memory_bytes"`
}

// Traffic counts what has been sent to a backend, or to all backends of a VIP.
type Traffic struct {
	Packets uint64 `json:"packets"`
	// Bytes counts the bytes of IP packets as received.
	Bytes uint64 `json:"bytes"`
	// Flows counts the flows that have entered the flow table.
	Flows uint64 `json:"flows"`
}

// VIP is a VIP in a Report.
type VIP struct {
	Service   string `json:"vip"`
	State     string `json:"state"`
	Hash      string `json:"hash"`
	OnFailure string `json:"on_failure"`
	Encap     string `json:"encapsulation"`
	// ServerID is the length in bytes of the server ID in QUIC connection IDs.
	ServerID uint8 `json:"quic_server_id,omitempty"`
	// Announce is set if the address is announced because of this VIP. AnnouncedTo has the neighbors to which the address is
	// announced, because of this VIP or another one of the address.
	Announce    bool         `json:"announce"`
	AnnouncedTo []netip.Addr `json:"announced_to"`
	Check       *lb.Check    `json:"check,omitempty"`
	From        string       `json:"from"`
	Traffic
	// Open is the number of flows in the flow table, if ShowOptions.Flows is set.
	Open     *uint64        `json:"open_flows,omitempty"`
	Events   lbplane.Events `json:"events"`
	Backends []Backend      `json:"backends"`
	// Sources are those of its backends, as the process has them, left out without any.
	Sources []sourcestate.Source `json:"sources,omitempty"`
}

// Backend is a backend of a VIP in a Report.
type Backend struct {
	Addr    string `json:"backend"`
	Encap   string `json:"encapsulation"`
	GUEPort uint16 `json:"gue_port,omitempty"`
	Weight  uint32 `json:"weight"`
	Drained bool   `json:"drained,omitempty"`
	// Share is the percentage of the ring that the backend has.
	Share    float64 `json:"share"`
	ServerID string  `json:"server_id,omitempty"`
	Health   Health  `json:"health"`
	// Source is the source of outer headers, an address or a prefix.
	Source  string `json:"source,omitempty"`
	NextHop *Hop   `json:"next_hop,omitempty"`
	// Problem is the reason why packets cannot be sent to it, "" if they can.
	Problem string `json:"problem,omitempty"`
	// Obstacle is the cause of the problem on this host, if that is known.
	Obstacle string `json:"obstacle,omitempty"`
	From     string `json:"from"`
	// OfferedBy is the name of the source that the backend comes from, left out for others.
	OfferedBy string `json:"offered_by,omitempty"`
	Traffic
	Open *uint64 `json:"open_flows,omitempty"`
}

// Health is the result of the health checks of a backend.
type Health struct {
	// State is "up", "down" or "unknown".
	State    string     `json:"state"`
	Since    *time.Time `json:"since,omitempty"`
	Checks   uint64     `json:"checks"`
	Failures uint64     `json:"failures"`
	// Why is the last failure.
	Why string `json:"why,omitempty"`
}

// Hop is the next hop to a backend.
type Hop struct {
	IfIndex   int    `json:"ifindex"`
	Interface string `json:"interface,omitempty"`
	MAC       string `json:"mac"`
	VLAN      int    `json:"vlan,omitempty"`
	// MTU is the largest packet with its outer header, in bytes.
	MTU uint16 `json:"mtu"`
}

func from(file bool) string {
	if file {
		return "file"
	}
	return "hand"
}

// fromOf returns where a backend comes from.
func fromOf(b lb.Backend) string {
	if b.Offered != "" {
		return "source"
	}
	return from(b.File)
}

// newHop returns nil for a next hop that is not known. It looks up interface names in this network namespace.
func newHop(h lbplane.Hop, here bool) *Hop {
	if h.Port == 0 {
		return nil
	}
	hop := &Hop{IfIndex: h.Port, MAC: net.HardwareAddr(h.DstMAC[:]).String(), VLAN: int(h.VLAN & 0xfff), MTU: h.MTU}
	if here {
		if dev, err := net.InterfaceByIndex(h.Port); err == nil {
			hop.Interface = dev.Name
		}
	}
	return hop
}

// Problems of backends.
const (
	problemHop    = "next hop not resolved"
	problemSource = "no source address to send from"
)

// problem returns why packets cannot be sent to a backend, "" if they can.
func problem(backend lbplane.Backend) string {
	switch {
	case backend.Hop.Port == 0:
		return problemHop
	case !hasSource(backend):
		return problemSource
	}
	return ""
}

// hasSource returns whether a backend has a source for outer headers or needs none.
func hasSource(backend lbplane.Backend) bool {
	return backend.Encap == lbplane.L2 || backend.Source.IsValid() && !(backend.Source.IsSingleIP() && backend.Source.Addr().IsUnspecified())
}
