// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// neighbor is the kernel's route to an address, and the entry of the next hop in the neighbor table.
type neighbor struct {
	addr netip.Addr
	// noRoute is the kernel's error if there is no route.
	noRoute error
	// local tells whether this host has the address.
	local bool
	// device is the name of the device that the route leaves by.
	device string
	// nextHop is the gateway, or addr itself if it is on the link.
	nextHop netip.Addr
	// resolved tells whether the link address of the next hop is known. mac is that address.
	resolved bool
	mac      string
}

func readNeighbor(addr netip.Addr) neighbor {
	n := neighbor{addr: addr, nextHop: addr}
	routes, err := netlink.RouteGet(addr.AsSlice())
	if err != nil || len(routes) == 0 {
		n.noRoute = err
		if err == nil {
			n.noRoute = unix.ENETUNREACH
		}
		return n
	}
	route := routes[0]
	n.local = route.Type == unix.RTN_LOCAL
	if gw, ok := netip.AddrFromSlice(route.Gw); ok {
		n.nextHop = gw.Unmap()
	}
	if l, err := netlink.LinkByIndex(route.LinkIndex); err == nil {
		n.device = l.Attrs().Name
	}
	family := netlink.FAMILY_V4
	if n.nextHop.Is6() {
		family = netlink.FAMILY_V6
	}
	entries, err := netlink.NeighList(route.LinkIndex, family)
	if err != nil {
		return n
	}
	const usable = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT
	for _, e := range entries {
		ip, ok := netip.AddrFromSlice(e.IP)
		if ok && ip.Unmap() == n.nextHop && e.State&usable != 0 {
			n.resolved = true
			n.mac = e.HardwareAddr.String()
		}
	}
	return n
}

func checkNeighbor(n neighbor) Finding {
	f := Finding{Check: "neighbor", Interface: n.device}
	switch {
	case n.noRoute != nil:
		f.Status = Fail
		f.Finding = fmt.Sprintf("no route to %s: %v", n.addr, n.noRoute)
		f.Command = fmt.Sprintf("ip route add %s via GATEWAY", n.addr)
	case n.local:
		f.Finding = fmt.Sprintf("%s is an address of this host", n.addr)
	case n.resolved:
		f.Finding = fmt.Sprintf("%s is at %s", n.addr, n.mac)
		if n.nextHop != n.addr {
			f.Finding = fmt.Sprintf("%s is reached through %s at %s", n.addr, n.nextHop, n.mac)
		}
	default:
		f.Status = Warn
		f.Finding = fmt.Sprintf("%s: the link address of %s is not resolved yet; the first packets take the slow path", n.addr, n.nextHop)
		f.Command = fmt.Sprintf("ping -c 1 -I %s %s", n.device, n.nextHop)
	}
	return f
}
