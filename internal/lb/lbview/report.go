// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"net"
	"net/netip"
	"time"

	"culvert/internal/lb"
	"culvert/internal/lb/bgpstate"
	"culvert/internal/lb/lbplane"
)

// States of a VIP.
const (
	Active = "active"
	// Drained is one that is not announced.
	Drained = "drained"
	// NoBackend is one that nobody has a weight for.
	NoBackend = "no backend"
	// Down is one whose backends cannot be used.
	Down = "down"
)

// Report is what 'culvert lb show -j' prints. Fields are added in later versions, never renamed.
type Report struct {
	Router     string   `json:"router"`
	NetNS      uint32   `json:"netns"`
	Interfaces []string `json:"interfaces"`
	Served     bool     `json:"served"`
	RingSize   int      `json:"ring_size"`
	// SeedID is the same for the same seed on all machines.
	SeedID    string    `json:"seed_id"`
	FlowTable FlowTable `json:"flow_table"`
	// BGP has the sessions of the process, none without [lb.bgp].
	BGP []bgpstate.Session `json:"bgp"`
	// BGPKnown is false where what the process announces cannot be told: BGP and AnnouncedTo are empty then.
	BGPKnown bool  `json:"bgp_known"`
	VIPs     []VIP `json:"vips"`
}

// FlowTable is the memory for flows.
type FlowTable struct {
	// Flows is how many it is made for, Used about how many it has.
	Flows  int    `json:"flows"`
	Used   uint64 `json:"used"`
	Memory uint64 `json:"memory_bytes"`
}

// Traffic is what has gone to a backend, or to all of a VIP.
type Traffic struct {
	Packets uint64 `json:"packets"`
	// Bytes are those of IP packets as they came in.
	Bytes uint64 `json:"bytes"`
	// Flows are those that the flow table has taken in.
	Flows uint64 `json:"flows"`
}

// VIP is a service.
type VIP struct {
	Service   string `json:"vip"`
	State     string `json:"state"`
	Hash      string `json:"hash"`
	OnFailure string `json:"on_failure"`
	Encap     string `json:"encapsulation"`
	// ServerID is how many bytes of QUIC connection IDs name the backend.
	ServerID uint8 `json:"quic_server_id,omitempty"`
	// Announce tells whether the VIP is a reason to announce its address; AnnouncedTo are the neighbors that have been told
	// of it, for this VIP or for another of its address.
	Announce    bool         `json:"announce"`
	AnnouncedTo []netip.Addr `json:"announced_to"`
	Check       *lb.Check    `json:"check,omitempty"`
	From        string       `json:"from"`
	Traffic
	// Open is how many flows the flow table has now, if that was asked for.
	Open     *uint64        `json:"open_flows,omitempty"`
	Events   lbplane.Events `json:"events"`
	Backends []Backend      `json:"backends"`
}

// Backend is one provider of a VIP.
type Backend struct {
	Addr    string `json:"backend"`
	Encap   string `json:"encapsulation"`
	GUEPort uint16 `json:"gue_port,omitempty"`
	Weight  uint32 `json:"weight"`
	Drained bool   `json:"drained,omitempty"`
	// Share is what the backend has of the ring, percent.
	Share    float64 `json:"share"`
	ServerID string  `json:"server_id,omitempty"`
	Health   Health  `json:"health"`
	// Source is where outer headers say that packets come from, an address or a prefix.
	Source  string `json:"source,omitempty"`
	NextHop *Hop   `json:"next_hop,omitempty"`
	// Problem says why packets cannot be sent to it.
	Problem string `json:"problem,omitempty"`
	// Obstacle says what on this host is the cause of the problem, if that is known.
	Obstacle string `json:"obstacle,omitempty"`
	From     string `json:"from"`
	Traffic
	Open *uint64 `json:"open_flows,omitempty"`
}

// Health is what the checks of a backend have found.
type Health struct {
	// State is up, down or unknown.
	State    string     `json:"state"`
	Since    *time.Time `json:"since,omitempty"`
	Checks   uint64     `json:"checks"`
	Failures uint64     `json:"failures"`
	// Why is the last failure.
	Why string `json:"why,omitempty"`
}

// Hop is how packets leave to a backend.
type Hop struct {
	IfIndex   int    `json:"ifindex"`
	Interface string `json:"interface,omitempty"`
	MAC       string `json:"mac"`
	VLAN      int    `json:"vlan,omitempty"`
	// MTU is the largest packet with its outer header, bytes.
	MTU uint16 `json:"mtu"`
}

func from(file bool) string {
	if file {
		return "file"
	}
	return "hand"
}

// newHop returns nil for a next hop that is not known. Names of interfaces are those of this network namespace.
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

// problem says why packets cannot be sent to a backend, "" if they can.
func problem(m lbplane.Backend) string {
	switch {
	case m.Hop.Port == 0:
		return problemHop
	case !hasSource(m):
		return problemSource
	}
	return ""
}

// hasSource is true where none is needed, too.
func hasSource(m lbplane.Backend) bool {
	return m.Encap == lbplane.L2 || m.Source.IsValid() && !(m.Source.IsSingleIP() && m.Source.Addr().IsUnspecified())
}
