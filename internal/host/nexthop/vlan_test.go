// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/neigh"
)

// TestVLANDevices takes devices as netlink tells of them, since not every kernel has VLANs.
func TestVLANDevices(t *testing.T) {
	link := func(name string, index, parent, master int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: name, Index: index, ParentIndex: parent, MasterIndex: master, MTU: 1500 - index, NetNsID: -1,
			EncapType: "ether", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, byte(index)}, RawFlags: unix.IFF_UP | unix.IFF_RUNNING}
	}
	vlan := func(a netlink.LinkAttrs, id int) *netlink.Vlan {
		return &netlink.Vlan{LinkAttrs: a, VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
	}
	dot1ad, prioritised := vlan(link("port.8", 4, 1, 0), 8), vlan(link("port.13", 13, 1, 0), 13)
	dot1ad.VlanProtocol = netlink.VLAN_PROTOCOL_8021AD
	prioritised.EgressQosMap = map[uint32]uint32{0: 5}
	abroad := link("abroad", 9, 1, 0)
	abroad.NetNsID = 3
	down := link("down", 14, 0, 0)
	down.RawFlags = unix.IFF_UP
	r := &Resolver{devices: map[int]device{}, neighbors: neigh.Table{}, abilities: map[int]ability{}}
	via := netip.MustParseAddr("10.0.0.1")
	for _, l := range []netlink.Link{
		&netlink.Device{LinkAttrs: link("port", 1, 0, 0)},
		&netlink.Bridge{LinkAttrs: link("bridge", 2, 0, 0)},
		vlan(link("port.7", 3, 1, 0), 7),
		dot1ad,
		vlan(link("port.7.9", 5, 3, 0), 9),
		vlan(link("port.8.9", 6, 4, 0), 9),
		&netlink.Device{LinkAttrs: link("slave", 7, 0, 2)},
		vlan(link("slave.7", 8, 7, 0), 7),
		vlan(abroad, 7),
		vlan(link("port.10", 10, 1, 2), 10),
		&netlink.Vrf{LinkAttrs: link("vrf", 11, 0, 0)},
		vlan(link("port.0", 12, 1, 11), 0),
		prioritised,
		&netlink.Device{LinkAttrs: down},
		vlan(link("down.7", 15, 14, 0), 7),
		vlan(link("deaf.7", 16, 18, 0), 7),
		vlan(link("linear.7", 17, 19, 0), 7),
		&netlink.Device{LinkAttrs: link("deaf", 18, 0, 0)},
		&netlink.Device{LinkAttrs: link("linear", 19, 0, 0)},
		vlan(link("gone.7", 20, 99, 0), 7),
	} {
		index := l.Attrs().Index
		r.devices[index] = deviceOf(l)
		r.neighbors[neigh.Key{IfIndex: index, Addr: via}] = neigh.Entry{State: unix.NUD_REACHABLE, MAC: [6]byte{9}}
	}
	r.abilities[18] = ability{deaf: true}
	r.abilities[19] = ability{linearOnly: true}
	tagged := map[int]NextHop{
		3:  {IfIndex: 1, VLAN: 0x1007, MTU: 1497},
		12: {IfIndex: 1, VLAN: 0x1000, MTU: 1488},
		17: {IfIndex: 19, VLAN: 0x1007, MTU: 1483, LinearOnly: true},
	}
	for _, r.vlan = range []bool{false, true} {
		for index, d := range r.devices {
			want := NextHop{}
			switch {
			case d.kind == "vlan" && r.vlan:
				want = tagged[index]
			case d.kind != "vlan" && index != 14 && index != 18:
				want = NextHop{IfIndex: index, MTU: uint16(1500 - index), LinearOnly: index == 19}
			}
			if want.Resolved() {
				want.SrcMAC, want.DstMAC = [6]byte{2, 0, 0, 0, 0, byte(index)}, [6]byte{9}
			}
			if got, _ := r.nextHop(&route{via: neigh.Key{IfIndex: index, Addr: via}}); got != want {
				t.Errorf("%s with option %v: %+v, want %+v", d.name, r.vlan, got, want)
			}
		}
	}
	// Asked again, the deaf device takes frames: so does every one that the kernel does not tell about.
	var reported []NextHop
	target := &Target{route: route{via: neigh.Key{IfIndex: 16, Addr: via}}, report: func(n NextHop) { reported = append(reported, n) }}
	r.targets = map[*Target]struct{}{target: {}}
	r.askDevices()
	want := NextHop{IfIndex: 18, VLAN: 0x1007, MTU: 1484, SrcMAC: [6]byte{2, 0, 0, 0, 0, 16}, DstMAC: [6]byte{9}}
	if len(reported) != 1 || reported[0] != want {
		t.Errorf("reported %+v, want %+v", reported, want)
	}
}
