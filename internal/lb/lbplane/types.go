// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Options turn the load balancer on.
type Options struct {
	// RingSize is the number of positions in each VIP's ring, a prime; 0 for DefaultRingSize.
	RingSize int
	// Flows is the number of flows that the flow table is made for, 0 for DefaultFlows. Each takes 73 bytes.
	Flows int
	// VIPs is the largest number of VIPs, Backends that of the backends of all VIPs together; 0 for DefaultVIPs and
	// DefaultBackends.
	VIPs     int
	Backends int
	// InsertRate is the largest number of new flows a second that enter the table; 0 for DefaultInsertRate. Flows that
	// begin with a SYN and others are limited separately.
	InsertRate int
	// Seed is the key of the hash that maps a client to a position in the ring. Machines that share VIPs need the same.
	Seed [6]uint32
	// IdleNew is how long a flow of one packet stays in the table. IdleTCP, IdleClosing and IdleUDP count from the last
	// packet of a flow; 0 for DefaultIdleNew and so on. The table's resolution is Tick.
	IdleNew, IdleTCP, IdleClosing, IdleUDP time.Duration
	// Unclaimed is what happens to packets to a VIP's address that belong to no VIP and that the kernel would forward.
	Unclaimed Unclaimed
	// Fill writes VIPs and backends before the program receives packets. Attach calls it under the instance's lock and
	// returns its error. The new program has adopted everything from the load balancer before it, except for rings of
	// another size. If RingSize, VIPs and Backends are as before, the maps are shared: what Fill writes is in force for
	// the running program at once, as with Edit, and stays if Attach fails.
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

	// Tick is the resolution of the flow table's times, MaxIdle the longest idle time.
	Tick    = time.Duration(1) << tickShift
	MaxIdle = 8 * time.Hour

	// MaxVIPs is LB_MAX_VIPS of bpf/lb/maps.h. MaxBackends is the range of LB_NUMBER there.
	MaxVIPs     = 1024
	MaxBackends = 1 << numberBits
	// MaxRing is the largest RingSize: a ring of 64 MiB.
	MaxRing = 1 << 24
	// MaxFlows is the largest Flows: a flow table of 73 GB.
	MaxFlows = 1_000_000_000
)

// Constants of bpf/lb/flow.h and bpf/lb/maps.h.
const (
	tickShift  = 32
	maxTicks   = 0x3fff
	bucketWays = 14
	numberBits = 20
)

// VIPKey identifies a VIP: the destination of its packets.
type VIPKey struct {
	Addr  netip.Addr
	Proto uint8  // IPPROTO_TCP or IPPROTO_UDP
	Port  uint16 // in host byte order, 0 for all ports
}

// String returns the VIP as in commands: "192.0.2.1:80/tcp", or "192.0.2.1/udp" for all ports.
func (k VIPKey) String() string {
	protocol := "tcp"
	if k.Proto == unix.IPPROTO_UDP {
		protocol = "udp"
	}
	if k.Port == 0 {
		return fmt.Sprintf("%s/%s", k.Addr, protocol)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(k.Addr, k.Port), protocol)
}

// VIP has the properties of a VIP in the data plane.
type VIP struct {
	// Number is the index of its ring and its counters.
	Number uint32
	// Source assigns all flows of a client to one backend, SourcePort all flows from one port of a client. Move assigns
	// flows of a failed backend to another one. Empty is set if there is no backend for new flows.
	Source, SourcePort, Move, Empty bool
	// ServerID is the length in bytes of the server ID in QUIC connection IDs, 0 for none. IDConfig is the config
	// rotation of such IDs (QUIC-LB).
	ServerID, IDConfig uint8
}

// Unclaimed is what happens to packets to the address of a VIP that belong to no VIP. Packets that the kernel would not
// forward are always passed to it: the address is its own, it has no route for it, or forwarding is off. The values are
// shared with enum lb_unclaimed of bpf/lb/unclaimed.h.
type Unclaimed uint8

// What happens to unclaimed packets.
const (
	Reject Unclaimed = iota // answer with an ICMP error, up to a rate
	Drop
	Pass
)

// Encap is the encapsulation of packets to a backend. The values are shared with enum lb_encap of bpf/lb/maps.h.
type Encap uint8

// Encapsulations.
const (
	L2 Encap = iota
	IPIP
	GUE
)

// BackendID identifies a backend in flows and rings: its number in the lower 20 bits, and a generation that distinguishes
// it from earlier backends with the same number. 0 is no backend.
type BackendID uint32

// NewBackendID returns the ID of a number below MaxBackends and a generation from 1 to 4095. 1 follows 4095.
func NewBackendID(number, generation uint32) BackendID {
	return BackendID(generation<<numberBits | number)
}

// Number returns the number of the backend.
func (id BackendID) Number() uint32 { return uint32(id) & (MaxBackends - 1) }

// Generation returns the generation of the backend's number.
func (id BackendID) Generation() uint32 { return uint32(id) >> numberBits }

// Backend is a backend of one VIP.
type Backend struct {
	ID BackendID
	// VIP is the number of its VIP.
	VIP uint32
	// Addr is the destination of the outer header.
	Addr  netip.Addr
	Encap Encap
	// GUEPort is the destination port of GUE's UDP header, in host byte order.
	GUEPort uint16
	// Source is the source of the outer header. The bits behind the prefix, at most 32, come from the hash of the flow.
	Source netip.Prefix
	// Down is set if its health checks fail.
	Down bool
	// Used is false for a backend that has been deleted.
	Used bool
	Hop  Hop
}

// Hop is the next hop to a backend.
type Hop struct {
	// Port is the index of the egress interface, 0 if the next hop is not known.
	Port           int
	SrcMAC, DstMAC [6]byte
	// MTU is the largest outer IP packet, in bytes.
	MTU uint16
	// VLAN is the 802.1Q tag to add: 0x1000 + VLAN ID, or 0 for none.
	VLAN uint16
	// LinearOnly is set if the interface takes no redirected frames of several buffers.
	LinearOnly bool
}

// Traffic counts the packets and bytes sent to a backend, and its flows that have entered the flow table. Bytes are those
// of the IP packets without encapsulation.
type Traffic struct{ Packets, Bytes, Flows uint64 }

// Events counts packets and flows of a VIP by what has happened to them. Names are those of enum lb_event in
// bpf/lb/maps.h, such as "untracked".
type Events map[string]uint64

// Flow is an entry of the flow table.
type Flow struct {
	Client netip.AddrPort
	// Port is the destination port, of the VIP.
	Port    uint16
	VIP     uint32
	Backend BackendID
	// State is "new", "open", "closing" or "udp".
	State string
	// Idle is the time since its last packet, in steps of Tick.
	Idle time.Duration
	// Expired is set if Idle has reached the idle time of its state. The entry stays until GC or another flow takes it.
	Expired bool
}

// Health is the result of the health checks of a backend.
type Health struct {
	Backend BackendID
	State   HealthState
	// Since is when the state began.
	Since            time.Time
	Checks, Failures uint64
	// Text is the last failure, cut at 95 bytes.
	Text string
}

// HealthState says whether a backend passes its health checks.
type HealthState uint8

// States of backends. A backend is Unknown until its first check passes or enough of them in a row fail.
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

// Normal returns the options with defaults in place of zeros, nil for nil. It returns an error for values out of range.
func (o *Options) Normal() (*Options, error) {
	if o == nil {
		return nil, nil
	}
	n := *o
	for _, f := range []struct {
		what         string
		value        *int
		defaultValue int
		most         int
	}{
		{"positions in a ring", &n.RingSize, DefaultRingSize, MaxRing},
		{"flows in the flow table", &n.Flows, DefaultFlows, MaxFlows},
		{"VIPs", &n.VIPs, DefaultVIPs, MaxVIPs},
		{"backends", &n.Backends, DefaultBackends, MaxBackends},
		{"new flows a second", &n.InsertRate, DefaultInsertRate, 1_000_000_000},
	} {
		if *f.value == 0 {
			*f.value = f.defaultValue
		}
		if *f.value < 1 || *f.value > f.most {
			return nil, fmt.Errorf("%d %s: use 1 to %d", *f.value, f.what, f.most)
		}
	}
	for _, f := range []struct {
		what         string
		value        *time.Duration
		defaultValue time.Duration
	}{
		{"of a flow of one packet", &n.IdleNew, DefaultIdleNew},
		{"of TCP", &n.IdleTCP, DefaultIdleTCP},
		{"of a TCP flow that ends", &n.IdleClosing, DefaultIdleClosing},
		{"of UDP", &n.IdleUDP, DefaultIdleUDP},
	} {
		if *f.value == 0 {
			*f.value = f.defaultValue
		}
		if *f.value < Tick || *f.value > MaxIdle {
			return nil, fmt.Errorf("idle time %s of %v: use %v to %v", f.what, *f.value, Tick.Round(time.Second/10), MaxIdle)
		}
	}
	return &n, nil
}
