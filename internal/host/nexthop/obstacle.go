// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
)

// Obstacle says why an address has no next hop if the reason is that it is this host's own, or that its device takes no frames
// that XDP redirects to it. It returns "" if the device does, or if the kernel (before Linux 6.3) cannot say. generic tells that the
// programs run in generic mode (Options.Generic).
func Obstacle(addr netip.Addr, generic bool) string {
	routes, err := netlink.RouteGet(addr.AsSlice())
	if err != nil || len(routes) == 0 {
		return ""
	}
	if routes[0].Type == unix.RTN_LOCAL {
		return fmt.Sprintf("this host has the address %s itself: packets are redirected to other hosts only", addr)
	}
	if generic {
		return ""
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return ""
	}
	if vlan, ok := link.(*netlink.Vlan); ok {
		if link, err = netlink.LinkByIndex(vlan.ParentIndex); err != nil {
			return ""
		}
	}
	xdp, err := netdev.Open(netdev.XDPFamily)
	if err != nil {
		return ""
	}
	defer xdp.Close()
	if acts, ok := xdp.XDPActs(link.Attrs().Index); !ok || acts&netdev.ActXmit != 0 {
		return ""
	}
	if link.Type() == "veth" {
		return fmt.Sprintf("%s takes no redirected frames: NAPI is off at its peer: ethtool -K PEER gro on, see culvert doctor", link.Attrs().Name)
	}
	return fmt.Sprintf("%s takes no redirected frames: see culvert doctor -i %[1]s", link.Attrs().Name)
}
