// SPDX-License-Identifier: Apache-2.0

//go:build guest

package nexthop

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
)

// These tests need VLAN devices, which Debian's kernels in guests have.

var far7 = netip.MustParseAddr("10.9.7.2")

// newVLANWire is a wire with VLAN 7 on the first pair, its MTU smaller than that of the device below.
func newVLANWire(t *testing.T, o Options) *wire {
	t.Helper()
	w := newWire(t, o)
	w.vlan(w.peer, &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "v7p"}, VlanId: 7}, "cv0p", "10.9.7.2/24", "fd09:7::2/64")
	w.newV7()
	return w
}

// newV7 makes the near end. Its MAC address differs from that of the device below.
func (w *wire) newV7() {
	w.t.Helper()
	mac := net.HardwareAddr{2, 0, 0, 0, 7, 1}
	w.vlan(w.own, &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: "v7", MTU: 1450, HardwareAddr: mac}, VlanId: 7}, "cv0", "10.9.7.1/24", "fd09:7::1/64")
}

func (w *wire) vlan(h *netlink.Handle, v *netlink.Vlan, below string, prefixes ...string) {
	w.t.Helper()
	v.ParentIndex = w.link(h, below).Attrs().Index
	if v.VlanProtocol == 0 {
		v.VlanProtocol = netlink.VLAN_PROTOCOL_8021Q
	}
	check(w.t, h.LinkAdd(v))
	w.address(h, v.Name, prefixes...)
}

// via7 is the next hop through the VLAN.
func (w *wire) via7() NextHop {
	hop := w.via("v7", "v7p")
	hop.IfIndex, hop.VLAN = w.link(w.own, "cv0").Attrs().Index, netdev.VLANTag|7
	return hop
}

// TestVLAN loses and restores the next hop through the VLAN. Each case has a wire of its own, so that a report of an earlier
// change cannot pass for one of the next.
func TestVLAN(t *testing.T) {
	for name, c := range map[string]struct{ lose, restore func(w *wire) }{
		"below down": {
			func(w *wire) { check(t, w.own.LinkSetDown(w.link(w.own, "cv0"))) },
			func(w *wire) { check(t, w.own.LinkSetUp(w.link(w.own, "cv0"))) },
		},
		"below in a bridge": {
			func(w *wire) {
				bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
				check(t, w.own.LinkAdd(bridge))
				check(t, w.own.LinkSetMaster(w.link(w.own, "cv0"), bridge))
			},
			func(w *wire) { check(t, w.own.LinkSetNoMaster(w.link(w.own, "cv0"))) },
		},
		"removed": {
			func(w *wire) { check(t, w.own.LinkDel(w.link(w.own, "v7"))) },
			(*wire).newV7,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newVLANWire(t, Options{VLAN: true})
			w.track(far7, netip.Addr{})
			want := w.via7()
			if want.MTU != 1450 || want.SrcMAC == w.mac(w.own, "cv0") {
				t.Fatalf("%+v is not of the VLAN device", want)
			}
			w.expect(want)
			c.lose(w)
			w.expect(NextHop{})
			c.restore(w)
			w.expect(w.via7())
		})
	}
}

// TestVLANAboveDeviceWithoutXmit checks a VLAN above a device that takes no frames. Before Linux 6.3 every device counts as
// able.
func TestVLANAboveDeviceWithoutXmit(t *testing.T) {
	w := newVLANWire(t, Options{VLAN: true})
	// The entry is permanent, so that no change of the neighbor triggers an update of the target.
	mac := w.mac(w.peer, "v7p")
	check(t, w.own.NeighSet(&netlink.Neigh{LinkIndex: w.link(w.own, "v7").Attrs().Index, IP: far7.AsSlice(),
		State: unix.NUD_PERMANENT, HardwareAddr: mac[:]}))
	w.track(far7, netip.Addr{})
	w.expect(w.via7())
	if w.resolver.xdp == nil {
		return
	}
	w.listen("cv0p", 0)
	w.expect(NextHop{})
	w.listen("cv0p", 1)
	w.expect(w.via7())
}

func TestVLANMACChange(t *testing.T) {
	w := newVLANWire(t, Options{VLAN: true})
	w.track(far7, netip.Addr{})
	w.expect(w.via7())
	check(t, w.own.LinkSetHardwareAddr(w.link(w.own, "v7"), net.HardwareAddr{2, 0, 0, 0, 7, 2}))
	w.expect(w.via7())
}

func TestVLANV6AndGateway(t *testing.T) {
	w := newVLANWire(t, Options{VLAN: true, Source: true})
	_, dst, _ := net.ParseCIDR("2001:db8::/32")
	check(t, w.own.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP("fd09:7::2"), MTU: 1300}))
	w.track(netip.MustParseAddr("2001:db8::7"), netip.Addr{})
	want := w.via7()
	want.MTU, want.Source = 1300, netip.MustParseAddr("fd09:7::1")
	w.expect(want)
}

// TestVLANWithoutOption checks that addresses behind a VLAN device do not resolve for callers that do not write tags.
func TestVLANWithoutOption(t *testing.T) {
	w := newVLANWire(t, Options{})
	w.track(far7, netip.Addr{})
	w.expect(NextHop{})
}

func TestVLANRefused(t *testing.T) {
	w := newVLANWire(t, Options{VLAN: true})
	for name, v := range map[string]*netlink.Vlan{
		"v7":  {VlanId: 9},
		"cv0": {VlanId: 10, VlanProtocol: netlink.VLAN_PROTOCOL_8021AD},
		"cv1": {VlanId: 11, EgressQosMap: map[uint32]uint32{0: 5}},
	} {
		v.Name = name + "x"
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(v.VlanId), 1}), 24)
		w.vlan(w.own, v, name, prefix.String())
		there := prefix.Addr().Next()
		check(t, w.own.NeighSet(&netlink.Neigh{LinkIndex: w.link(w.own, v.Name).Attrs().Index, IP: there.AsSlice(),
			State: unix.NUD_PERMANENT, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 3}}))
		w.track(there, netip.Addr{})
		// The neighbor is known, so the first report is final.
		if got := <-w.findings; got != (NextHop{}) {
			t.Errorf("VLAN %d above %s: %+v, want none", v.VlanId, name, got)
		}
	}
}

// TestVLANTrackDevices checks that a VLAN device is reported as the kernel reports it to sockets, and with
// it the VRF that it is in.
func TestVLANTrackDevices(t *testing.T) {
	w := newVLANWire(t, Options{})
	w.trackDevices(far7, netip.MustParseAddr("10.9.7.1"), 0)("VLAN", "v7")
	vrf := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: "vrf1"}, Table: 100}
	check(t, w.own.LinkAdd(vrf))
	check(t, w.own.LinkSetUp(vrf))
	check(t, w.own.LinkSetMaster(w.link(w.own, "v7"), w.link(w.own, "vrf1")))
	w.trackDevices(far7, netip.MustParseAddr("10.9.7.1"), w.link(w.own, "vrf1").Attrs().Index)("socket in the VRF", "v7", "vrf1")
}
