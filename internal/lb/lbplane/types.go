// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"net/netip"
	"time"
)

// Options turn the load balancer on.
type Options struct {
	// RingSize is how many positions each VIP's ring has, a prime; 0 for DefaultRingSize.
	RingSize int
	// Flows is how many flows the flow table is made for, 0 for DefaultFlows. It takes 73 bytes for each.
	Flows int
	// VIPs and Backends, of all VIPs together, bound what can be configured; 0 for DefaultVIPs and DefaultBackends.
	VIPs     int
	Backends int
	// InsertRate is how many flows a second are taken into the table, those that begin with a SYN and others
	// apart; 0 for DefaultInsertRate.
	InsertRate int
	// Seed decides which backend a client gets. Machines that share VIPs have the same.
	Seed [6]uint32
	// IdleNew is how long a flow stays in the table after its only packet, IdleTCP, IdleClosing and IdleUDP after
	// its last; 0 for DefaultIdleNew and so on. The table counts in Tick.
	IdleNew, IdleTCP, IdleClosing, IdleUDP time.Duration
	// Unclaimed says what becomes of packets to a VIP's address that no VIP takes, where the kernel would forward them.
	Unclaimed Unclaimed
	// Fill writes VIPs and backends before the programs see packets. Attach calls it, nobody else changes the load
	// balancer meanwhile, and what the load balancer that ran before knew is there already: all of it, but for
	// rings of another size. Unless the new one has another size of rings, or room for another number of VIPs or
	// backends, the programs that run see what Fill writes at once, as with Edit, and it stays if Attach
	// fails. An error of Fill is Attach's.
	Fill func(*Plane) error `json:"-"`
}

// Defaults and bounds of the load balancer.
const (
	DefaultRingSize   = 65537
	DefaultFlows      = 1 << 20
	DefaultVIPs       = 256
	DefaultBackends   = 16384
	DefaultInsertRate = 200_000

	DefaultIdleNew     = time.Minute
	DefaultIdleTCP     = 15 * time.Minute
	DefaultIdleClosing = time.Minute
	DefaultIdleUDP     = 3 * time.Minute

	// Tick is the resolution of the flow table's times, and MaxIdle the longest of them.
	Tick    = time.Duration(1) << tickShift
	MaxIdle = 8 * time.Hour

	// MaxVIPs is LB_MAX_VIPS, MaxBackends what LB_NUMBER has room for, of bpf/lb/maps.h.
	MaxVIPs     = 1024
	MaxBackends = 1 << numberBits
	// MaxRing bounds a ring: 64 MiB.
	MaxRing = 1 << 24
	// MaxFlows bounds the flow table: 73 GB.
	MaxFlows = 1_000_000_000
)

// As in bpf/lb/flow.h and bpf/lb/maps.h.
const (
	tickShift  = 32
	maxTicks   = 0x3fff
	bucketWays = 14
	numberBits = 20
)

// VIPKey is what a packet is addressed to.
type VIPKey struct {
	Addr  netip.Addr
	Proto uint8  // IPPROTO_TCP or IPPROTO_UDP
	Port  uint16 // 0 for all of them
}

// VIP is what the programs know of a VIP.
type VIP struct {
	// Number names its ring and its counters.
	Number uint32
	// Source gives all flows of a client to one backend, SourcePort all flows from one port of a client. Move gives
	// flows of a failed backend to another one. Empty says that there is no backend for new flows.
	Source, SourcePort, Move, Empty bool
	// ServerID is how many bytes of QUIC connection IDs name the server, 0 for none; IDConfig is the config
	// rotation of such IDs (QUIC-LB).
	ServerID, IDConfig uint8
}

// Unclaimed is what becomes of packets to the address of a VIP that are no VIP's, unless the kernel has the address
// itself, no route for it, or does not forward. The values are shared with enum lb_unclaimed of
// bpf/lb/unclaimed.h.
type Unclaimed uint8

// What becomes of such packets.
const (
	Reject Unclaimed = iota // an ICMP error, under a limit
	Drop
	Pass
)

// Encap is how packets get to a backend. The values are shared with enum lb_encap of bpf/lb/maps.h.
type Encap uint8

// Encapsulations.
const (
	L2 Encap = iota
	IPIP
	GUE
)

// BackendID is what flows and rings call a backend: its number, and a generation that tells it from those that have
// had the number before. 0 is nobody.
type BackendID uint32

// NewBackendID makes one; generations are 1 to 4095, and go round.
func NewBackendID(number, generation uint32) BackendID {
	return BackendID(generation<<numberBits | number)
}

// Number returns the number of the backend.
func (o BackendID) Number() uint32 { return uint32(o) & (MaxBackends - 1) }

// Generation returns how the backend is told from others of the number.
func (o BackendID) Generation() uint32 { return uint32(o) >> numberBits }

// Backend is a backend of one VIP.
type Backend struct {
	ID BackendID
	// VIP is the number of its VIP.
	VIP uint32
	// Addr is where the outer header leads.
	Addr  netip.Addr
	Encap Encap
	// GUEPort is UDP's destination port.
	GUEPort uint16
	// Source is that of the outer header; the bits behind the prefix come from the flow. At most 32 are used.
	Source netip.Prefix
	// Down says that its checks fail.
	Down bool
	// Used is false for a backend that has gone.
	Used bool
	Hop  Hop
}

// Hop is how packets leave to a backend.
type Hop struct {
	// Port is the index of the interface that frames leave by, 0 when the way is not known.
	Port           int
	SrcMAC, DstMAC [6]byte
	// MTU is the largest outer IP packet, bytes.
	MTU uint16
	// VLAN is the 802.1Q tag to put on: 0x1000 + VLAN ID, or 0 for none.
	VLAN uint16
	// LinearOnly says that the interface takes no redirected frames of several buffers.
	LinearOnly bool
}

// Traffic counts packets to a backend.
type Traffic struct{ Packets, Bytes, Flows uint64 }

// Events counts what happens to a VIP beside the packets of its backends, by the names of enum lb_event in
// bpf/lb/maps.h: "untracked".
type Events map[string]uint64

// Flow is an entry of the flow table.
type Flow struct {
	Client netip.AddrPort
	// Port is the VIP's.
	Port    uint16
	VIP     uint32
	Backend BackendID
	// State is "new", "open", "closing" or "udp".
	State string
	// Idle is how long ago its last packet was, in steps of Tick.
	Idle time.Duration
	// Expired says that its time is over: it is there until another flow needs the place.
	Expired bool
}

// Health is what the checks of a backend have found.
type Health struct {
	Backend BackendID
	State   HealthState
	// Since is when the state began.
	Since            time.Time
	Checks, Failures uint64
	// Text says what failed last, cut at 95 bytes.
	Text string
}

// HealthState is whether a backend answers its checks.
type HealthState uint8

// States of backends.
const (
	Unknown HealthState = iota
	Up
	Down
)

func (s HealthState) String() string {
	switch s {
	case Up:
		return "up"
	case Down:
		return "down"
	}
	return "unknown"
}

// Normal fills in what is left to defaults and refuses what leads nowhere.
func (o *Options) Normal() (*Options, error) {
	if o == nil {
		return nil, nil
	}
	n := *o
	for _, f := range []struct {
		what      string
		value     *int
		otherwise int
		most      int
	}{
		{"positions in a ring", &n.RingSize, DefaultRingSize, MaxRing},
		{"flows in the flow table", &n.Flows, DefaultFlows, MaxFlows},
		{"VIPs", &n.VIPs, DefaultVIPs, MaxVIPs},
		{"backends", &n.Backends, DefaultBackends, MaxBackends},
		{"new flows a second", &n.InsertRate, DefaultInsertRate, 1_000_000_000},
	} {
		if *f.value == 0 {
			*f.value = f.otherwise
		}
		if *f.value < 1 || *f.value > f.most {
			return nil, fmt.Errorf("%d %s: use 1 to %d", *f.value, f.what, f.most)
		}
	}
	for _, f := range []struct {
		what      string
		value     *time.Duration
		otherwise time.Duration
	}{
		{"of a flow of one packet", &n.IdleNew, DefaultIdleNew},
		{"of TCP", &n.IdleTCP, DefaultIdleTCP},
		{"of a TCP flow that ends", &n.IdleClosing, DefaultIdleClosing},
		{"of UDP", &n.IdleUDP, DefaultIdleUDP},
	} {
		if *f.value == 0 {
			*f.value = f.otherwise
		}
		if *f.value < Tick || *f.value > MaxIdle {
			return nil, fmt.Errorf("idle time %s of %v: use %v to %v", f.what, *f.value, Tick.Round(time.Second/10), MaxIdle)
		}
	}
	return &n, nil
}
