// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestSource(t *testing.T) {
	_, dst, _ := net.ParseCIDR("192.0.2.0/24")
	other := netip.MustParseAddr("10.9.0.77")
	for name, c := range map[string]struct{ to, from, want netip.Addr }{
		"by device":     {to: there, want: here},
		"IPv6":          {to: far6, want: here6},
		"as asked":      {to: there, from: other, want: other},
		"IPv6 as asked": {to: far6, from: netip.MustParseAddr("fd99::77"), want: netip.MustParseAddr("fd99::77")},
		"any":           {to: there, from: netip.IPv4Unspecified(), want: here},
		"by route":      {to: netip.MustParseAddr("192.0.2.7"), want: other},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, Options{Source: true})
			w.address(w.own, "cv0", "10.9.0.77/24", "fd99::77/128")
			check(t, w.own.RouteAdd(&netlink.Route{Dst: dst, Gw: there.AsSlice(), Src: other.AsSlice()}))
			w.track(c.to, c.from)
			want := w.via("cv0", "cv0p")
			want.Source = c.want
			w.expect(want)
		})
	}
}

func TestSourceChange(t *testing.T) {
	w := newWire(t, Options{Source: true})
	w.track(there, netip.Addr{})
	want := w.via("cv0", "cv0p")
	want.Source = here
	w.expect(want)
	cv0 := w.link(w.own, "cv0")
	addr, err := netlink.ParseAddr("10.9.0.1/24")
	check(t, err)
	check(t, w.own.AddrDel(cv0, addr))
	w.expect(NextHop{})
	w.address(w.own, "cv0", "10.9.0.9/24")
	want.Source = netip.MustParseAddr("10.9.0.9")
	w.expect(want)
}
