// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"maps"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"culvert/internal/bpfobj"
	"culvert/internal/testbed"
)

// vlans makes these the VLANs of lb0. dev is the index of the device of all of them.
func (b *bed) vlans(dev int, ids ...int) {
	b.t.Helper()
	want := make([]uint32, b.inst.Map(bpfobj.PipelineMapLbVlans).MaxEntries())
	for _, id := range ids {
		want[b.inst.PortSlot("lb0")*vlanIDs+id] = uint32(dev)
	}
	_, err := b.plane.setVLANs(want)
	b.must(err)
}

// allVLANs returns all VLAN IDs.
func allVLANs() (all []int) {
	for id := 1; id < vlanIDs; id++ {
		all = append(all, id)
	}
	return all
}

// TestVLANs wants VIPs to be served on VLANs that this host has, and on those that they name.
func TestVLANs(t *testing.T) {
	b := newBed(t, Options{})
	backend := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{backend})
	b.vip(1, vip6, protoTCP, []Backend{backend})
	b.vip(2, "192.0.2.2:80", protoTCP, []Backend{backend})
	b.vlans(b.in.Index, 9, 4095)
	quoted := b.packet(vip4, client4, ack(), make([]byte, 40))[14:]
	for _, c := range []struct {
		frame  []byte
		reason string
	}{
		{b.packet(client4, vip4, syn(), nil), "fwd lb-new"},
		{b.packet(client4, vip4, ack(), nil), "fwd lb-flow"},
		{b.packet(client6, vip6, syn(), nil), "fwd lb-new"},
		{b.packet(client6, vip6, ack(), nil), "fwd lb-flow"},
		{b.icmp("203.0.113.7", "192.0.2.1", 8, 0, 7, nil), "fwd lb-echo"},
		{b.icmp("198.51.100.9", "192.0.2.1", 3, 4, 1400, quoted), "fwd lb-icmp"},
		{fragment4(b.packet(client4, vip4, ack(), make([]byte, 400)), 0, true), "fwd lb-flow"},
		{b.packet(client4, vip4, ack(), make([]byte, 1490)), "fwd lb-too-big"},
	} {
		for _, other := range []uint16{1, 8, 10, 2048, 4094} {
			b.expectUnchanged(tagged(c.frame, 0x6000|other), "pass other")
		}
		b.expect(tagged(c.frame, 0x6009), c.reason)
		again := c.reason
		if again == "fwd lb-new" {
			again = "fwd lb-flow"
		}
		b.expect(tagged(c.frame, 4095), again)
		b.expect(c.frame, again)
	}
	// A named VLAN is for the VIPs of its address.
	for _, addr := range []string{"192.0.2.1", "2001:db8::1"} {
		v := NamedVLAN{netip.MustParseAddr(addr), 10}
		b.must(b.plane.SetNamedVLAN(v))
		if all, err := b.plane.NamedVLANs(); err != nil || !maps.Equal(all, map[NamedVLAN]bool{v: true}) {
			t.Errorf("named are %v, %v", all, err)
		}
		for client, vip := range map[string]string{client4: vip4, client6: vip6, "203.0.113.8:99": "192.0.2.2:80"} {
			in := tagged(b.packet(client, vip, ack(), nil), 10)
			if netip.MustParseAddrPort(vip).Addr() == v.Addr {
				b.expect(in, "fwd lb-flow")
			} else {
				b.expectUnchanged(in, "pass other")
			}
		}
		b.expectUnchanged(tagged(b.packet(client4, vip4, ack(), nil), 11), "pass other")
		b.must(b.plane.DeleteNamedVLAN(v))
		b.must(b.plane.DeleteNamedVLAN(v))
		b.expectUnchanged(tagged(b.packet(client4, vip4, ack(), nil), 10), "pass other")
		b.expectUnchanged(tagged(b.packet(client6, vip6, ack(), nil), 10), "pass other")
	}
	// This host has no VLAN devices, so FollowVLANs removes what the test has set.
	if changed, err := b.plane.FollowVLANs(); err != nil || !changed {
		t.Errorf("changed %v, %v", changed, err)
	}
	b.expectUnchanged(tagged(b.packet(client4, vip4, ack(), nil), 9), "pass other")
	if changed, err := b.plane.FollowVLANs(); err != nil || changed {
		t.Errorf("changed again: %v, %v", changed, err)
	}
}

// TestVLANsOfRenamed wants an interface to keep its VLANs when it is renamed, even if another interface gets its name.
func TestVLANsOfRenamed(t *testing.T) {
	b := newBed(t, Options{})
	backend := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{backend})
	follow := func(when string, want bool, on int, ids ...int) {
		t.Helper()
		var links []netlink.Link
		for _, id := range ids {
			links = append(links, &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Index: 100 + id, ParentIndex: on, Flags: net.FlagUp},
				VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q})
		}
		if changed, err := b.plane.followVLANs(links); err != nil || changed != want {
			t.Errorf("%s: changed %v, %v", when, changed, err)
		}
	}
	b.expect(b.packet(client4, vip4, syn(), nil), "fwd lb-new")
	follow("as it was attached", true, b.in.Index, 7, 8)
	testbed.Rename(t, "lb0", "trunk0")
	follow("renamed", false, b.in.Index, 7, 8)
	testbed.Rename(t, "trunk0", "lb0")
	b.expect(tagged(b.packet(client4, vip4, ack(), nil), 7), "fwd lb-flow")
	testbed.Rename(t, "lb0", "trunk0")
	testbed.AddVeth(t, "lb0", "lb1p")
	follow("another interface has its name", false, b.in.Index, 7, 8)
	for _, u := range b.inst.Unattached() {
		b.must(b.inst.AttachPort(u))
	}
	follow("the program is attached to the other interface", true, testbed.Device(t, "lb0").Index, 9)
	testbed.DeleteDevice(t, "lb0")
	follow("the other interface was deleted", true, b.in.Index)
}

// TestUnclaimedOnVLANs wants no answers on VLANs without a device, from which the kernel receives no packets.
func TestUnclaimedOnVLANs(t *testing.T) {
	b := unclaimedBed(t, Options{})
	in := b.packet(client4, "192.0.2.1:81", &layers.UDP{}, nil)
	b.vlans(b.in.Index, 9)
	b.expect(tagged(in, 9), "fwd lb-unreachable")
	b.expectUnchanged(tagged(in, 8), "pass other")
	b.must(b.plane.SetNamedVLAN(NamedVLAN{netip.MustParseAddr("192.0.2.1"), 8}))
	b.expectUnchanged(tagged(in, 8), "pass other")
	// The forwarding sysctl of the VLAN device decides whether the kernel forwards.
	b.vlans(b.out.Index, 9)
	b.must(testbed.WriteSysctl("ipv4/conf/out0/forwarding", "0"))
	b.expectUnchanged(tagged(in, 9), "pass other")
}

// TestVLANsOnInterface checks which devices count as a VLAN of an interface.
func TestVLANsOnInterface(t *testing.T) {
	vlan := func(index, parent, id int, flags net.Flags, proto netlink.VlanProtocol) netlink.Link {
		return &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Index: index, ParentIndex: parent, Flags: flags}, VlanId: id, VlanProtocol: proto}
	}
	const on, q, ad = net.FlagUp, netlink.VLAN_PROTOCOL_8021Q, netlink.VLAN_PROTOCOL_8021AD
	links := []netlink.Link{
		&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 2, Flags: on}},
		&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 3, Flags: on, MasterIndex: 4}},
		&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Index: 4, Flags: on}},
		vlan(10, 2, 100, on, q), vlan(11, 2, 101, 0, q), vlan(12, 2, 102, on, ad), vlan(13, 3, 103, on, q), vlan(14, 4, 104, on, q),
		vlan(15, 10, 105, on, q),
		&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Index: 16, ParentIndex: 2, Flags: on}},
	}
	if got := vlansOn(links, 2); !maps.Equal(got, map[uint16]int{100: 10}) {
		t.Errorf("on 2: %v", got)
	}
	if got := vlansOn(links, 3); !maps.Equal(got, map[uint16]int{103: 13, 104: 14}) {
		t.Errorf("on 3: %v", got)
	}
}
