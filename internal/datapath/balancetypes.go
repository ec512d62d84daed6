// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"time"
)

// BalanceOptions turn the load balancer on.
type BalanceOptions struct {
	// RingSize is how many positions each VIP's ring has, a prime; 0 for BalanceRingSize.
	RingSize int
	// Flows is how many flows the flow table is made for, 0 for BalanceFlows. It takes 73 bytes for each.
	Flows int
	// VIPs and Members bound what can be configured, members being the backends of all VIPs together; 0 for
	// BalanceVIPs and BalanceMembers.
	VIPs, Members int
	// InsertRate is how many flows a second are taken into the table, those that begin with a SYN and others
	// apart; 0 for BalanceInsertRate.
	InsertRate int
	// Seed decides which backend a client gets. Machines that share VIPs have the same.
	Seed [6]uint32
	// IdleNew is how long a flow stays in the table after its only packet, IdleTCP, IdleClosing and IdleUDP after
	// its last; 0 for BalanceIdleNew and so on. The table counts in BalanceTick.
	IdleNew, IdleTCP, IdleClosing, IdleUDP time.Duration
	// Unclaimed says what becomes of packets to a VIP's address that no VIP takes, where the kernel would forward them.
	Unclaimed BalanceUnclaimed
	// Fill writes VIPs and members before the programs see packets. Attach calls it, nobody else changes the load
	// balancer meanwhile, and what the load balancer that ran before knew is there already: all of it, but for
	// rings of another size. Unless the new one has another size of rings, or room for another number of VIPs or
	// members, the programs that run see what Fill writes at once, as with EditBalance, and it stays if Attach
	// fails. An error of Fill is Attach's.
	Fill func(*BalancePlane) error `json:"-"`
}

// Defaults and bounds of the load balancer.
const (
	BalanceRingSize   = 65537
	BalanceFlows      = 1 << 20
	BalanceVIPs       = 256
	BalanceMembers    = 16384
	BalanceInsertRate = 200_000

	BalanceIdleNew     = time.Minute
	BalanceIdleTCP     = 15 * time.Minute
	BalanceIdleClosing = time.Minute
	BalanceIdleUDP     = 3 * time.Minute

	// BalanceTick is the resolution of the flow table's times, and BalanceMaxIdle the longest of them.
	BalanceTick    = time.Duration(1) << balanceTickShift
	BalanceMaxIdle = 8 * time.Hour

	// BalanceMaxVIPs is LB_MAX_VIPS, BalanceMaxMembers what LB_NUMBER has room for, of bpf/lb/maps.h.
	BalanceMaxVIPs    = 1024
	BalanceMaxMembers = 1 << balanceNumberBits
	// BalanceMaxRing bounds a ring: 64 MiB.
	BalanceMaxRing = 1 << 24
	// BalanceMaxFlows bounds the flow table: 73 GB.
	BalanceMaxFlows = 1_000_000_000
)

// As in bpf/lb/flow.h and bpf/lb/maps.h.
const (
	balanceTickShift  = 32
	balanceTicks      = 0x3fff
	balanceWays       = 14
	balanceNumberBits = 20
)

// BalanceVIPKey is what a packet is addressed to.
type BalanceVIPKey struct {
	Addr  netip.Addr
	Proto uint8  // IPPROTO_TCP or IPPROTO_UDP
	Port  uint16 // 0 for all of them
}

// BalanceVIP is what the programs know of a VIP.
type BalanceVIP struct {
	// Number names its ring and its counters.
	Number uint32
	// Source gives all flows of a client to one backend, SourcePort all flows from one port of a client. Move gives
	// flows of a failed backend to another one. Empty says that there is no backend for new flows.
	Source, SourcePort, Move, Empty bool
	// ServerID is how many bytes of QUIC connection IDs name the server, 0 for none; IDConfig is the config
	// rotation of such IDs (QUIC-LB).
	ServerID, IDConfig uint8
}

// BalanceUnclaimed is what becomes of packets to the address of a VIP that are no VIP's, unless the kernel has the address
// itself, no route for it, or does not forward. The values are shared with enum lb_unclaimed of
// bpf/lb/unclaimed.h.
type BalanceUnclaimed uint8

// What becomes of such packets.
const (
	BalanceReject BalanceUnclaimed = iota // an ICMP error, under a limit
	BalanceDrop
	BalancePass
)

// BalanceEncap is how packets get to a backend. The values are shared with enum lb_encap of bpf/lb/maps.h.
type BalanceEncap uint8

// Encapsulations.
const (
	BalanceL2 BalanceEncap = iota
	BalanceIPIP
	BalanceGUE
)

// BalanceOwner is what flows and rings call a member: its number, and a generation that tells it from those that have
// had the number before. 0 is nobody.
type BalanceOwner uint32

// NewBalanceOwner makes one; generations are 1 to 4095, and go round.
func NewBalanceOwner(number, generation uint32) BalanceOwner {
	return BalanceOwner(generation<<balanceNumberBits | number)
}

// Number returns the number of the member.
func (o BalanceOwner) Number() uint32 { return uint32(o) & (BalanceMaxMembers - 1) }

// Generation returns how the member is told from others of the number.
func (o BalanceOwner) Generation() uint32 { return uint32(o) >> balanceNumberBits }

// BalanceMember is a backend of one VIP.
type BalanceMember struct {
	Owner BalanceOwner
	// VIP is the number of its VIP.
	VIP uint32
	// Addr is where the outer header leads.
	Addr  netip.Addr
	Encap BalanceEncap
	// GUEPort is UDP's destination port.
	GUEPort uint16
	// Source is that of the outer header; the bits behind the prefix come from the flow. At most 32 are used.
	Source netip.Prefix
	// Down says that its checks fail.
	Down bool
	// Used is false for a member that has gone.
	Used bool
	Hop  BalanceHop
}

// BalanceHop is how packets leave to a backend.
type BalanceHop struct {
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

// BalanceTraffic counts packets to a member.
type BalanceTraffic struct{ Packets, Bytes, Flows uint64 }

// BalanceEvents counts what happens to a VIP beside the packets of its members, by the names of enum lb_event in
// bpf/lb/maps.h: "untracked".
type BalanceEvents map[string]uint64

// BalanceFlow is an entry of the flow table.
type BalanceFlow struct {
	Client netip.AddrPort
	// Port is the VIP's.
	Port  uint16
	VIP   uint32
	Owner BalanceOwner
	// State is "new", "open", "closing" or "udp".
	State string
	// Idle is how long ago its last packet was, in steps of BalanceTick.
	Idle time.Duration
	// Expired says that its time is over: it is there until another flow needs the place.
	Expired bool
}

// BalanceHealth is what the checks of a member have found.
type BalanceHealth struct {
	Owner BalanceOwner
	State BalanceState
	// Since is when the state began.
	Since            time.Time
	Checks, Failures uint64
	// Text says what failed last, cut at 95 bytes.
	Text string
}

// BalanceState is whether a member answers its checks.
type BalanceState uint8

// States of members.
const (
	BalanceUnknown BalanceState = iota
	BalanceUp
	BalanceDown
)

func (s BalanceState) String() string {
	switch s {
	case BalanceUp:
		return "up"
	case BalanceDown:
		return "down"
	}
	return "unknown"
}

// Normal fills in what is left to defaults and refuses what leads nowhere.
func (o *BalanceOptions) Normal() (*BalanceOptions, error) {
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
		{"positions in a ring", &n.RingSize, BalanceRingSize, BalanceMaxRing},
		{"flows in the flow table", &n.Flows, BalanceFlows, BalanceMaxFlows},
		{"VIPs", &n.VIPs, BalanceVIPs, BalanceMaxVIPs},
		{"backends", &n.Members, BalanceMembers, BalanceMaxMembers},
		{"new flows a second", &n.InsertRate, BalanceInsertRate, 1_000_000_000},
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
		{"of a flow of one packet", &n.IdleNew, BalanceIdleNew},
		{"of TCP", &n.IdleTCP, BalanceIdleTCP},
		{"of a TCP flow that ends", &n.IdleClosing, BalanceIdleClosing},
		{"of UDP", &n.IdleUDP, BalanceIdleUDP},
	} {
		if *f.value == 0 {
			*f.value = f.otherwise
		}
		if *f.value < BalanceTick || *f.value > BalanceMaxIdle {
			return nil, fmt.Errorf("idle time %s of %v: use %v to %v", f.what, *f.value, BalanceTick.Round(time.Second/10), BalanceMaxIdle)
		}
	}
	return &n, nil
}
