// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/neigh"
	"culvert/internal/host/netdev"
)

// TestVLANDevices builds the devices in memory, since not every kernel has VLANs. It compares the next hops without and with
// Options.VLAN.
func TestVLANDevices(t *testing.T) {
	link := func(name string, index, parent, master int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: name, Index: index, ParentIndex: parent, MasterIndex: master, MTU: 1500 - index, NetNsID: -1,
			EncapType: "ether", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, byte(index)}, RawFlags: unix.IFF_UP | unix.IFF_RUNNING}
	}
	vlan := func(a netlink.LinkAttrs, id int) *netlink.Vlan {
		return &netlink.Vlan{LinkAttrs: a, VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
	}
	dot1ad, priorities := vlan(link("port.8", 4, 1, 0), 8), vlan(link("port.13", 13, 1, 0), 13)
	dot1ad.VlanProtocol = netlink.VLAN_PROTOCOL_8021AD
	priorities.EgressQosMap = map[uint32]uint32{0: 5}
	abroad := link("abroad", 9, 1, 0)
	abroad.NetNsID = 3
	down := link("down", 14, 0, 0)
	down.RawFlags = unix.IFF_UP
	r := &Resolver{devices: map[int]device{}, neighbors: neigh.Table{}, abilities: map[int]netdev.Egress{}}
	via := netip.MustParseAddr("10.0.0.1")
	none := NextHop{}
	cases := []struct {
		about      string
		link       netlink.Link
		plain, tag NextHop // without and with the option, MAC addresses left out
	}{
		{"Ethernet", &netlink.Device{LinkAttrs: link("port", 1, 0, 0)}, NextHop{IfIndex: 1, MTU: 1499}, NextHop{IfIndex: 1, MTU: 1499}},
		{"bridge", &netlink.Bridge{LinkAttrs: link("bridge", 2, 0, 0)}, NextHop{IfIndex: 2, MTU: 1498}, NextHop{IfIndex: 2, MTU: 1498}},
		{"VLAN", vlan(link("port.7", 3, 1, 0), 7), none, NextHop{IfIndex: 1, VLAN: 0x1007, MTU: 1497}},
		{"VLAN of 802.1ad", dot1ad, none, none},
		{"VLAN in a VLAN", vlan(link("port.7.9", 5, 3, 0), 9), none, none},
		{"VLAN in a VLAN of 802.1ad", vlan(link("port.8.9", 6, 4, 0), 9), none, none},
		{"port of a bridge", &netlink.Device{LinkAttrs: link("slave", 7, 0, 2)}, NextHop{IfIndex: 7, MTU: 1493}, NextHop{IfIndex: 7, MTU: 1493}},
		{"VLAN of a port of a bridge", vlan(link("slave.7", 8, 7, 0), 7), none, none},
		{"VLAN of a device in another namespace", vlan(abroad, 7), none, none},
		{"VLAN in a bridge", vlan(link("port.10", 10, 1, 2), 10), none, none},
		{"VRF", &netlink.Vrf{LinkAttrs: link("vrf", 11, 0, 0)}, NextHop{IfIndex: 11, MTU: 1489}, NextHop{IfIndex: 11, MTU: 1489}},
		{"VLAN 0 in a VRF", vlan(link("port.0", 12, 1, 11), 0), none, NextHop{IfIndex: 1, VLAN: 0x1000, MTU: 1488}},
		{"VLAN with priorities", priorities, none, none},
		{"without carrier", &netlink.Device{LinkAttrs: down}, none, none},
		{"VLAN of a device without carrier", vlan(link("down.7", 15, 14, 0), 7), none, none},
		{"VLAN of a device that takes no frames", vlan(link("noxmit.7", 16, 18, 0), 7), none, none},
		{"VLAN of a device that takes linear frames", vlan(link("linear.7", 17, 19, 0), 7), none,
			NextHop{IfIndex: 19, VLAN: 0x1007, MTU: 1483, LinearOnly: true}},
		{"takes no frames", &netlink.Device{LinkAttrs: link("noxmit", 18, 0, 0)}, none, none},
		{"takes linear frames", &netlink.Device{LinkAttrs: link("linear", 19, 0, 0)},
			NextHop{IfIndex: 19, MTU: 1481, LinearOnly: true}, NextHop{IfIndex: 19, MTU: 1481, LinearOnly: true}},
		{"VLAN of a device that is gone", vlan(link("gone.7", 20, 99, 0), 7), none, none},
	}
	for _, c := range cases {
		index := c.link.Attrs().Index
		r.devices[index] = deviceOf(c.link)
		r.abilities[index] = netdev.Egress{}
		r.neighbors[neigh.Key{IfIndex: index, Addr: via}] = neigh.Entry{State: unix.NUD_REACHABLE, MAC: [6]byte{9}}
	}
	r.abilities[18] = netdev.Egress{None: true}
	r.abilities[19] = netdev.Egress{LinearOnly: true}
	for _, c := range cases {
		index := c.link.Attrs().Index
		for option, want := range map[bool]NextHop{false: c.plain, true: c.tag} {
			if want.Resolved() {
				want.SrcMAC, want.DstMAC = [6]byte{2, 0, 0, 0, 0, byte(index)}, [6]byte{9}
			}
			r.vlan = option
			if got, _ := r.nextHop(&route{via: neigh.Key{IfIndex: index, Addr: via}}); got != want {
				t.Errorf("%s with option %v: %+v, want %+v", c.about, option, got, want)
			}
		}
	}
	r.vlan = true
	// Without a netlink client every device counts as able to take frames of one buffer, also this one when it is asked about again.
	var reported []NextHop
	target := &Target{route: route{via: neigh.Key{IfIndex: 16, Addr: via}}, report: func(n NextHop) { reported = append(reported, n) }}
	r.targets = map[*Target]struct{}{target: {}}
	r.abilities = map[int]netdev.Egress{18: {None: true}}
	r.askDevices()
	want := NextHop{IfIndex: 18, VLAN: 0x1007, MTU: 1484, SrcMAC: [6]byte{2, 0, 0, 0, 0, 16}, DstMAC: [6]byte{9}, LinearOnly: true}
	if len(reported) != 1 || reported[0] != want {
		t.Errorf("reported %+v, want %+v", reported, want)
	}
}
