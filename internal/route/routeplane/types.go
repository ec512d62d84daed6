// SPDX-License-Identifier: Apache-2.0

package routeplane

import "net/netip"

// Options turn the IP router on.
type Options struct {
	// NoMirror leaves the mirrored table out: every packet asks the kernel with bpf_fib_lookup.
	NoMirror bool
	// Blocks4 and Blocks6 are how many blocks of 256 entries the mirror has below its first level, 1 KiB
	// each; 0 for the defaults.
	Blocks4, Blocks6 int
	// Trusting takes the mirror for current without a heartbeat. It exists to measure a data plane that no
	// process serves; no configuration leads here.
	Trusting bool
}

// Sizes of the mirror.
const (
	// MaxHops is how many next hops the mirror can tell apart.
	MaxHops = 65536
	// DefaultBlocks4 and DefaultBlocks6 hold a full table of 2026 and half as much again.
	DefaultBlocks4 = 16384
	DefaultBlocks6 = 98304
	// MaxNeighbors is how many neighbours on connected networks have a next hop of their own.
	MaxNeighbors = 65536
)

// Action is what becomes of packets to a next hop of the mirror.
type Action uint8

// The values are shared with enum route_action in bpf/route/maps.h.
const (
	// Ask has the program ask the kernel: the answer depends on more than the destination, or the
	// mirror does not know. It is what an empty mirror says.
	Ask Action = iota
	// Forward sends to the neighbour.
	Forward
	// Connected looks for the neighbour of the destination itself on device Dev.
	Connected
	// Local is for addresses of this host, broadcast and multicast: to the kernel.
	Local
	// None, Unreachable and Prohibit go to the kernel, which answers.
	None
	Unreachable
	Prohibit
	// Blackhole drops.
	Blackhole
	// Resolve goes to the kernel, which has to find the neighbour first.
	Resolve
	// Elsewhere goes to the kernel: the device that it leaves by does not carry culvert, or takes no
	// frames from XDP.
	Elsewhere
)

// Next hops with a fixed number. Those of other numbers are for the control plane to give.
const (
	HopAsk = iota
	HopNone
	HopLocal
	HopUnreachable
	HopProhibit
	HopBlackhole
	HopElsewhere
	HopFirst = 16
)

// Hop is one way out of the mirror.
type Hop struct {
	Action Action
	// Dev is the logical device of the route: a VLAN device where there is one. Set for Forward,
	// Connected, Resolve and Elsewhere; the check of the source goes by it.
	Dev int
	// Port is the interface that frames leave by, Dev itself without a VLAN.
	Port int
	// VLAN is the 802.1Q tag to put on: 0x1000 + VLAN ID, or 0 for none.
	VLAN uint16
	// MTU is the largest IP packet, bytes.
	MTU            uint16
	SrcMAC, DstMAC [6]byte
	// LinearOnly says that Port takes no redirected frames of several buffers.
	LinearOnly bool
}

// Dev is what the program knows of a device by which packets come in or leave: an interface with
// the program on it, or a VLAN device above one.
type Dev struct {
	// Port is the interface below, Dev itself without a VLAN; VLAN is as in Hop.
	Port int
	VLAN uint16
	// MAC is where packets for this host are sent to on this device.
	MAC [6]byte
	// Forward4 and Forward6 tell whether the kernel would forward packets that come in here. A device below
	// a bridge, bond or the like has neither.
	Forward4, Forward6 bool
	// RPFilter is the source check in force here, rp_filter of ip-sysctl: 0 none, 1 strict, 2 loose.
	RPFilter uint8
	// Redirects tells whether the kernel answers IPv4 packets that leave where they came in (send_redirects).
	Redirects bool
	// Xmit tells whether frames may be redirected to Port; LinearOnly is as in Hop. For next hops that
	// the kernel is asked for.
	Xmit, LinearOnly bool
}

// Policy is what the host has set that changes how routes are chosen.
type Policy struct {
	// Kernel4 and Kernel6 leave every packet of the family to the kernel, for settings that neither mirror nor
	// bpf_fib_lookup honours.
	Kernel4, Kernel6 bool
	// Hash4 and Hash6 are fib_multipath_hash_policy.
	Hash4, Hash6 uint8
	// FullCheck4 is set when the kernel checks IPv4 sources though rp_filter is 0: with policy rules, or with
	// routes of type local that do not come from addresses.
	FullCheck4 bool
	// Rules4 and Rules6 are set with policy rules that look at transport protocols or ports.
	Rules4, Rules6 bool
	// MTU4 and MTU6 are the lowest MTU that a route has of its own, 0 for none: bpf_fib_lookup does not heed them
	// as forwarding does.
	MTU4, MTU6 uint16
}

// Neighbor is a neighbour on a connected network.
type Neighbor struct {
	Dev  int
	Addr netip.Addr
}
