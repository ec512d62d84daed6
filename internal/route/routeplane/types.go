// SPDX-License-Identifier: Apache-2.0

package routeplane

import "net/netip"

// Options turn the IP router on.
type Options struct {
	// NoMirror leaves the mirror out. The programs ask the kernel for each packet with bpf_fib_lookup.
	NoMirror bool
	// Blocks4 and Blocks6 are how many blocks of 256 entries, 1 KiB each, the mirror has below its first level.
	// 0 means the default.
	Blocks4, Blocks6 int
	// Trusting makes the programs believe the mirror without a deadline. It exists to measure a data plane that no
	// process serves. No configuration sets it.
	Trusting bool
	// choices is for how many flows the kernel's choice is remembered, a power of 2; 0 means maxChoices. Tests set it.
	choices int
}

// Sizes of the mirror.
const (
	// MaxHops is how many next hops the mirror can tell apart.
	MaxHops = 65536
	// DefaultBlocks4 and DefaultBlocks6 have room for one and a half full tables of 2026.
	DefaultBlocks4 = 16384
	DefaultBlocks6 = 98304
	// MaxNeighbors is how many neighbors on connected networks have a next hop of their own.
	MaxNeighbors = 65536
	// maxChoices is for how many flows the programs remember the kernel's choice, a power of 2. A flow has choiceWays places in
	// which it can be, so that hardly any of a quarter as many flows finds them taken.
	maxChoices = 1 << 18
	choiceWays = 4
	// secretWords is the size of route_secret in bpf/route/choice.h.
	secretWords = 20
	// Slots is how many slots of destinations each family has.
	Slots = 65536
)

// Action is what the programs do with packets to a next hop of the mirror.
type Action uint8

// The values are shared with enum route_action in bpf/route/maps.h.
const (
	// Ask makes the program ask the kernel: the answer depends on more than the destination, or the mirror does not
	// know it. An empty mirror has Ask everywhere.
	Ask Action = iota
	// Forward sends to the neighbor.
	Forward
	// Connected sends to the destination itself, a neighbor on device Dev.
	Connected
	// Local is for addresses of this host, broadcast and multicast. The packets go to the kernel.
	Local
	// None, Unreachable and Prohibit go to the kernel, which answers with an ICMP error.
	None
	Unreachable
	Prohibit
	// Blackhole drops.
	Blackhole
	// Resolve goes to the kernel, which has to resolve the neighbor first.
	Resolve
	// Elsewhere goes to the kernel, because the packet leaves by a device that does not carry culvert, or takes no
	// frames from XDP.
	Elsewhere
)

// Numbers of next hops that are fixed. The control plane assigns the numbers from HopFirst on.
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

// Hop is a next hop of the mirror.
type Hop struct {
	Action Action
	// Dev is the index of the route's device, which may be a VLAN device. It is set for Forward, Connected, Resolve
	// and Elsewhere. The source check compares it with the device by which a packet came in.
	Dev int
	// Port is the index of the interface by which frames leave: the one below a VLAN device, and else Dev.
	Port int
	// VLAN is the 802.1Q tag to add: 0x1000 + VLAN ID, or 0 for none.
	VLAN uint16
	// MTU is the size of the largest IP packet in bytes.
	MTU            uint16
	SrcMAC, DstMAC [6]byte
	// LinearOnly is true if Port takes no redirected frames of several buffers.
	LinearOnly bool
	// Remember, with Ask, means that the kernel's answer depends on the flow alone, until the next hop is written again. The
	// programs remember it for each flow.
	Remember bool
}

// Dev is what the programs know of a device by which packets come in or leave: an interface that carries the program, or
// a VLAN device above one.
type Dev struct {
	// Port is the index of the interface below a VLAN device, and else the device's own. VLAN is as in Hop.
	Port int
	VLAN uint16
	// MAC is the device's address, to which packets for this host are sent.
	MAC [6]byte
	// Forward4 and Forward6 are true if the kernel would forward packets that come in here. Both are false for a
	// port of a bridge, bond or the like.
	Forward4, Forward6 bool
	// RPFilter is the source check in force here (sysctl rp_filter): 0 none, 1 strict, 2 loose.
	RPFilter uint8
	// Redirects is true if the kernel sends ICMP redirects for IPv4 packets that leave where they came in
	// (send_redirects).
	Redirects bool
	// Xmit is true if frames may be redirected to Port. LinearOnly is as in Hop. The programs use both for next hops
	// that they ask the kernel for.
	Xmit, LinearOnly bool
}

// Policy holds the host's settings that change how routes are chosen.
type Policy struct {
	// Kernel4 and Kernel6 leave every packet of the family to the kernel, because of settings that neither the
	// mirror nor bpf_fib_lookup honors.
	Kernel4, Kernel6 bool
	// Hash4 and Hash6 are the sysctl fib_multipath_hash_policy.
	Hash4, Hash6 uint8
	// FullCheck4 is true if the kernel checks IPv4 sources although rp_filter is 0: because of policy rules, realms,
	// or routes of type local that do not come from addresses.
	FullCheck4 bool
	// Rules4 and Rules6 are true if a policy rule has conditions on the transport protocol or ports.
	Rules4, Rules6 bool
	// MTU4 and MTU6 are the lowest MTU that a route has of its own, 0 for none. The programs need them because
	// bpf_fib_lookup does not apply such an MTU as forwarding does.
	MTU4, MTU6 uint16
}

// Neighbor identifies a neighbor on a connected network by the index of the device and the address.
type Neighbor struct {
	Dev  int
	Addr netip.Addr
}
