// SPDX-License-Identifier: Apache-2.0

//go:build guest

package filterplane

import (
	"testing"

	"github.com/vishvananda/netlink"

	"culvert/internal/filter/pcap"
)

// TestFilterDeliverVLANs puts tags of VLAN 0 in front of other tags, behind them and between them. A rule for the other VLANs
// and a set drop the frames all the same. The test runs in a guest, because not all kernels have VLAN devices.
func TestFilterDeliverVLANs(t *testing.T) {
	b := newDeliverBed(t)
	l, err := netlink.LinkByName("srv")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrDel(l, mustAddr(t, synAddr4.String()+"/24")); err != nil {
		t.Fatal(err)
	}
	above := l
	for n, name := range []string{"srv.5", "srv.5.6", "srv.5.6.7"} {
		v := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: above.Attrs().Index}, VlanId: 5 + n}
		if err := netlink.LinkAdd(v); err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(v); err != nil {
			t.Fatal(err)
		}
		above = v
	}
	const q, ad = 0x81000000, 0x88a80000
	for _, c := range []struct {
		device string // gets the host's address
		tags   []uint32
		rule   string // has to drop the frame
	}{
		{"srv.5", []uint32{q | 5}, "vlan 5 and icmp"},
		{"srv.5", []uint32{q, q | 5}, "vlan 5 and icmp"},
		{"srv.5", []uint32{ad, q | 5}, "vlan 5 and icmp"},
		{"srv.5", []uint32{q | 5, q}, "vlan 5 and icmp"},
		{"srv.5", []uint32{q | 5, ad, q}, "vlan 5 and icmp"},
		{"srv.5.6", []uint32{q | 5, q | 6}, "vlan 5 and vlan 6 and icmp"},
		{"srv.5.6", []uint32{q, q | 5, q, q | 6, q}, "vlan 5 and vlan 6 and icmp"},
		{"srv.5.6.7", []uint32{q | 5, q | 6, q | 7}, "vlan 5 and vlan 6 and vlan 7 and icmp"},
		{"srv.5.6.7", []uint32{q | 5, q, q | 6, q | 7}, "vlan 5 and vlan 6 and vlan 7 and icmp"},
	} {
		d, err := netlink.LinkByName(c.device)
		if err != nil {
			t.Fatal(err)
		}
		addr := mustAddr(t, synAddr4.String()+"/24")
		if err := netlink.AddrAdd(d, addr); err != nil {
			t.Fatal(err)
		}
		n := netlink.Neigh{LinkIndex: d.Attrs().Index, State: netlink.NUD_PERMANENT, IP: peerAddr4.AsSlice(), HardwareAddr: b.mac}
		if err := netlink.NeighSet(&n); err != nil {
			t.Fatal(err)
		}
		frame := b.in(pack4(1, 0, nil, echo4()), c.tags...)
		if !b.answered(t, frame) {
			t.Errorf("%x: not answered without a rule", c.tags)
		}
		code, err := pcap.Compile(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		rule := deliverFilter{change: func(f *Filter) { f.Rules = []Rule{{Name: "no", Action: Drop, Code: code}} }}
		for name, filter := range map[string]deliverFilter{c.rule: rule, "set": deliverFilters(t)["set"]} {
			inst := b.filtered(t, filter)
			if b.answered(t, frame) {
				t.Errorf("%x: answered, though %s is to stop it", c.tags, name)
			}
			inst.Close()
		}
		if err := netlink.AddrDel(d, addr); err != nil {
			t.Fatal(err)
		}
	}
}

func mustAddr(t *testing.T, text string) *netlink.Addr {
	t.Helper()
	a, err := netlink.ParseAddr(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
