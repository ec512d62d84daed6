// SPDX-License-Identifier: Apache-2.0

//go:build guest

package lbplane

import (
	"testing"

	"github.com/vishvananda/netlink"
)

// TestVLANDevices adds and deletes VLAN devices, which VIPs follow. It runs in guests, since some hosts' kernels have no VLAN
// devices.
func TestVLANDevices(t *testing.T) {
	b := newBed(t, Options{})
	backend := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{backend})
	b.vip(1, vip6, protoTCP, []Backend{backend})
	follow := func(want bool) {
		t.Helper()
		changed, err := b.plane.FollowVLANs()
		b.must(err)
		if changed != want {
			t.Fatalf("changed: %v", changed)
		}
	}
	onVLAN := func(id uint16, reason string) {
		t.Helper()
		b.expect(tagged(b.packet(client4, vip4, ack(), nil), id), reason)
		b.expect(tagged(b.packet(client6, vip6, ack(), nil), id), reason)
	}
	b.expect(b.packet(client4, vip4, syn(), nil), "fwd lb-new")
	b.expect(b.packet(client6, vip6, syn(), nil), "fwd lb-new")
	follow(true) // the VLANs that newBed has set are removed
	onVLAN(7, "pass other")
	v7 := &netlink.Vlan{
		LinkAttrs: netlink.LinkAttrs{Name: "v7", ParentIndex: b.in.Index}, VlanId: 7, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q,
	}
	b.must(netlink.LinkAdd(v7))
	follow(false) // it is down
	onVLAN(7, "pass other")
	b.must(netlink.LinkSetUp(v7))
	follow(true)
	onVLAN(7, "fwd lb-flow")
	onVLAN(8, "pass other")
	b.must(netlink.LinkSetDown(v7))
	follow(true)
	onVLAN(7, "pass other")
	b.must(netlink.LinkSetUp(v7))
	follow(true)
	b.must(netlink.LinkDel(v7))
	follow(true)
	onVLAN(7, "pass other")
}
