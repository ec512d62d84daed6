// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/private/topology"
)

// Mix describes a network for RandomNetwork.
type Mix struct {
	Core bool
	// Own and Siblings are the link types of the router's own interfaces and of its siblings'.
	// A core AS takes core and child, any other AS parent, child and peer.
	Own, Siblings []topology.LinkType
	// SiblingRouters is the number of routers that share the sibling interfaces.
	SiblingRouters int
	// Internal6 makes the AS-internal network IPv6. External6 says which external links are IPv6.
	Internal6 bool
	External6 Share
	// SharedAddress makes all external links of one family use one local address and port.
	SharedAddress bool
	// PortStart and PortEnd are as in Network.
	PortStart, PortEnd uint16
}

// Share says how many of a set have a property.
type Share uint8

const (
	// None of them has it.
	None Share = iota
	// All of them have it.
	All
	// Half of them have it: every other one.
	Half
)

// Mixes returns the networks of the differential test. Together they have every link type, IPv4 and
// IPv6 inside and outside, alone and mixed, and none, one and several siblings.
func Mixes() []Mix {
	const core, parent, child, peer = topology.Core, topology.Parent, topology.Child, topology.Peer
	type types = []topology.LinkType
	return []Mix{
		{
			Own:      types{parent, parent, child, child, peer, peer},
			Siblings: types{parent, child, peer, child}, SiblingRouters: 2,
			External6: Half, PortStart: 31000, PortEnd: 32767,
		},
		{
			Core: true, Own: types{core, core, child, child},
			Siblings: types{core, child, child}, SiblingRouters: 2,
			PortStart: 1, PortEnd: 65535,
		},
		{
			Core: true, Own: types{core, core, core, child, child, child},
			Siblings: types{core, child}, SiblingRouters: 1,
			Internal6: true, External6: Half, SharedAddress: true, PortStart: 1024, PortEnd: 65535,
		},
		{
			Own:      types{parent, child, peer},
			Siblings: types{parent, child, child, peer}, SiblingRouters: 4,
			Internal6: true, External6: All, PortStart: 30000, PortEnd: 40000,
		},
		{
			Own:       types{parent, parent, child, child, child},
			Internal6: false, External6: All, PortStart: 0, PortEnd: 0,
		},
		{
			Own:       append(manyOf(child, 30), manyOf(parent, 6)...),
			Siblings:  append(manyOf(child, 20), manyOf(peer, 4)...),
			External6: None, SiblingRouters: 8, SharedAddress: true, PortStart: 1, PortEnd: 65535,
		},
	}
}

func manyOf(t topology.LinkType, n int) []topology.LinkType {
	s := make([]topology.LinkType, n)
	for i := range s {
		s[i] = t
	}
	return s
}

// RandomNetwork makes a network of the given mix. Interface IDs, keys and ports are random. Addresses
// are not, which makes packet dumps readable.
func RandomNetwork(rng *rand.Rand, mix Mix, now uint32) *Network {
	n := &Network{
		IA: addr.MustIAFrom(1, 0xff00_0000_0110), Core: mix.Core, MTU: 1472, RouterID: "br-1",
		PortStart: mix.PortStart, PortEnd: mix.PortEnd, Now: now,
	}
	binary.BigEndian.PutUint64(n.Key[:8], rng.Uint64())
	binary.BigEndian.PutUint64(n.Key[8:], rng.Uint64())
	inside := func(host byte, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(insideAddr(mix.Internal6, host), port)
	}
	n.addLink(Link{Scope: Internal, Local: inside(1, 30001)})
	ids := map[uint16]bool{0: true}
	newID := func() uint16 {
		id := uint16(0)
		for ids[id] {
			id = uint16(rng.Uint32())
			if rng.IntN(2) == 0 {
				id %= 300
			}
		}
		ids[id] = true
		return id
	}
	for i, t := range mix.Own {
		six := mix.External6 == All || mix.External6 == Half && i%2 == 1
		local, remote := linkAddrs(rng, i, six, mix.SharedAddress)
		id := newID()
		link := n.addLink(Link{Scope: External, IfID: id, Local: local, Remote: remote})
		n.Interfaces = append(n.Interfaces, Interface{
			ID: id, Type: t, Neighbor: n.foreignIA(uint64(i)), RemoteID: uint16(1 + i),
			Link: link, Local: local, Remote: remote,
		})
	}
	routers := make([]int, mix.SiblingRouters)
	for i := range routers {
		routers[i] = n.addLink(Link{
			Scope: Sibling, Local: n.Links[0].Local, Remote: inside(byte(100+i), 30001+uint16(i%2)),
		})
		// Siblings are on the same network as the hosts.
		n.Links[routers[i]].Device = 0
	}
	for i, t := range mix.Siblings {
		local, remote := linkAddrs(rng, 200+i, false, false)
		n.Interfaces = append(n.Interfaces, Interface{
			ID: newID(), Type: t, Neighbor: n.foreignIA(uint64(200 + i)), RemoteID: uint16(1 + i),
			Link: routers[i%len(routers)], Local: local, Remote: remote,
		})
	}
	for i := range 6 {
		n.Hosts = append(n.Hosts, Host{
			Addr: insideAddr(mix.Internal6, byte(10+i)), MAC: placeholderMAC(0x200 + i),
		})
	}
	n.Control = []netip.AddrPort{inside(10, 30252), inside(11, 30252)}
	n.Discovery = []netip.AddrPort{inside(10, 30254)}
	return n
}

func insideAddr(six bool, host byte) netip.Addr {
	if six {
		return netip.AddrFrom16([16]byte{0xfd, 0, 0xca, 0xfe, 15: host})
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, host})
}

// linkAddrs returns the two underlay addresses of the i-th external link.
func linkAddrs(rng *rand.Rand, i int, six, shared bool) (local, remote netip.AddrPort) {
	net, port := byte(i), uint16(50000+rng.IntN(100))
	if shared {
		net, port = 255, 50000
	}
	l := netip.AddrFrom4([4]byte{192, 168, net, 1})
	r := netip.AddrFrom4([4]byte{192, 168, byte(i), 2})
	if six {
		l = netip.AddrFrom16([16]byte{0xfd, 1, 5: net, 15: 1})
		r = netip.AddrFrom16([16]byte{0xfd, 1, 5: byte(i), 15: 2})
	}
	return netip.AddrPortFrom(l, port), netip.AddrPortFrom(r, uint16(50000+rng.IntN(100)))
}
