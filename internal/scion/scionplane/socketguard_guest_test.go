// SPDX-License-Identifier: Apache-2.0

//go:build guest

package scionplane_test

import (
	"testing"

	"github.com/vishvananda/netlink"

	"culvert/internal/scion/scionplane"
	"culvert/internal/testbed"
)

// This test needs a kernel with VRF devices, such as Debian's.

// TestSocketGuardVRF checks the rule of a socket in a VRF, for which the kernel reports the VRF as the device of incoming
// datagrams.
func TestSocketGuardVRF(t *testing.T) {
	s := newGuardedSocket(t, func() {
		vrf := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: "vrf1"}, Table: 100}
		if err := netlink.LinkAdd(vrf); err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(vrf); err != nil {
			t.Fatal(err)
		}
		a0, err := netlink.LinkByName("a0")
		if err == nil {
			err = netlink.LinkSetMaster(a0, vrf)
		}
		if err != nil {
			t.Fatal(err)
		}
	}, "vrf1")
	if err := s.guard.Add(s.fd, 0); err != nil {
		t.Fatal(err)
	}
	s.rule(scionplane.Accept{Devices: []int{testbed.Device(t, "a0").Index}})
	s.inject("a", make([]byte, 42))
	s.expect("the device in the VRF", -1, scionplane.SocketDrops{Interface: 1})
	s.rule(scionplane.Accept{Devices: []int{testbed.Device(t, "a0").Index, testbed.Device(t, "vrf1").Index}})
	s.inject("a", make([]byte, 43))
	s.expect("the VRF", 43, scionplane.SocketDrops{Interface: 1})
}
