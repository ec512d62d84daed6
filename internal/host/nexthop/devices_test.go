// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// trackDevices follows the devices to an address. expect waits until they are those named.
func (w *wire) trackDevices(to, from netip.Addr, bound int) (expect func(step string, names ...string)) {
	found := make(chan []int, 1000)
	w.resolver.TrackDevices(to, from, bound, func(devices []int) { found <- devices })
	return func(step string, names ...string) {
		w.t.Helper()
		var want, got []int
		for _, n := range names {
			want = append(want, w.link(w.own, n).Attrs().Index)
		}
		slices.Sort(want)
		deadline := time.After(patience)
		for {
			select {
			case got = <-found:
				if slices.Equal(got, want) {
					return
				}
			case <-deadline:
				w.t.Fatalf("%s: devices %v, want %v", step, got, want)
			}
		}
	}
}

func hostRoute(to string) *net.IPNet {
	ip := net.ParseIP(to)
	bits := 128
	if four := ip.To4(); four != nil {
		ip, bits = four, 32
	}
	return &net.IPNet{IP: ip, Mask: net.CIDRMask(bits, bits)}
}

// The devices follow the routes, and do not depend on an answer from a neighbor.
func TestDevicesFollowRoutes(t *testing.T) {
	w := newWire(t, Options{})
	nobody := netip.MustParseAddr("10.9.0.99")
	expect := w.trackDevices(nobody, here, 0)
	expect("connected", "cv0")
	route := &netlink.Route{Dst: hostRoute("10.9.0.99"), LinkIndex: w.link(w.own, "cv1").Attrs().Index, Scope: netlink.SCOPE_LINK}
	check(t, w.own.RouteReplace(route))
	expect("moved", "cv1")
	check(t, w.own.RouteDel(route))
	expect("moved back", "cv0")
	black := &netlink.Route{Dst: hostRoute("10.9.0.99"), Type: unix.RTN_BLACKHOLE}
	check(t, w.own.RouteAdd(black))
	expect("blackhole")
	check(t, w.own.RouteDel(black))
	expect("back", "cv0")
	check(t, w.own.LinkSetDown(w.link(w.own, "cv0")))
	expect("down")
	check(t, w.own.LinkSetUp(w.link(w.own, "cv0")))
	expect("up again", "cv0")
}

// Answers may come by each of several next hops.
func TestDevicesOfSeveralNextHops(t *testing.T) {
	w := newWire(t, Options{})
	w.address(w.own, "cv1", "fd09:1::1/64")
	for _, to := range []struct{ addr, from, one, other string }{
		{"198.51.100.7", "10.9.0.1", "10.9.0.2", "10.9.1.2"},
		{"2001:db8::7", "fd09::1", "fd09::2", "fd09:1::2"},
	} {
		expect := w.trackDevices(netip.MustParseAddr(to.addr), netip.MustParseAddr(to.from), 0)
		expect("no route")
		route := &netlink.Route{Dst: hostRoute(to.addr), MultiPath: []*netlink.NexthopInfo{
			{LinkIndex: w.link(w.own, "cv0").Attrs().Index, Gw: net.ParseIP(to.one)},
			{LinkIndex: w.link(w.own, "cv1").Attrs().Index, Gw: net.ParseIP(to.other)},
		}}
		check(t, w.own.RouteAdd(route))
		expect("both", "cv0", "cv1")
		check(t, w.own.RouteDel(route))
		expect("none")
	}
}

func TestDevicesOfThisHost(t *testing.T) {
	w := newWire(t, Options{})
	lo := w.link(w.own, "lo")
	check(t, w.own.LinkSetUp(lo))
	w.trackDevices(here, here, 0)("own address", "lo")
	w.trackDevices(netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.1"), 0)("loopback", "lo")
}

// A socket that is bound to a device uses the routes of that device.
func TestDevicesOfBoundSockets(t *testing.T) {
	w := newWire(t, Options{})
	far := netip.MustParseAddr("198.51.100.7")
	expect := w.trackDevices(far, netip.MustParseAddr("10.9.1.1"), w.link(w.own, "cv1").Attrs().Index)
	add := func(dev, gateway string, metric int) {
		check(t, w.own.RouteAdd(&netlink.Route{Dst: hostRoute("198.51.100.7"), Gw: net.ParseIP(gateway),
			LinkIndex: w.link(w.own, dev).Attrs().Index, Priority: metric}))
	}
	add("cv0", "10.9.0.2", 1)
	add("cv1", "10.9.1.2", 2)
	expect("by the device", "cv1")
}
