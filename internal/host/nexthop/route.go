// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/neigh"
	"culvert/internal/host/netdev"
)

// route is where the kernel would send packets to a target. The zero value is no usable route.
type route struct {
	// via is the neighbor. Without an address only the kernel has a way, by the device if there is one.
	via neigh.Key
	// gateway says that the neighbor is not the target itself.
	gateway bool
	// mtu is the route's own, 0 for none.
	mtu int
	// viaOtherFamily marks an IPv4 route with an IPv6 gateway.
	viaOtherFamily bool
	// kernel marks a way that only the kernel can take: to this host, or into a tunnel.
	kernel bool
	// source is the local address of packets, invalid if there is none.
	source netip.Addr
}

// device is what matters of a network interface.
type device struct {
	name   string
	mac    [6]byte
	mtu    int
	usable bool // Ethernet with neighbors, up and with carrier
	ready  bool // of whatever kind, up and with carrier
	// master is the bridge, bond or VRF that it belongs to.
	master int
	kind   string // as netlink names it: vlan, vrf ...
	// parent is the device below a VLAN device, vlan its tag (netdev.VLANOf).
	parent int
	vlan   uint16
}

func deviceOf(l netlink.Link) device {
	a := l.Attrs()
	d := device{name: a.Name, mtu: a.MTU, master: a.MasterIndex, kind: l.Type()}
	d.parent, d.vlan = netdev.VLANOf(l)
	const ready = unix.IFF_UP | unix.IFF_RUNNING
	d.ready = a.RawFlags&ready == ready
	d.usable = d.ready && a.EncapType == "ether" && len(a.HardwareAddr) == 6 && a.RawFlags&unix.IFF_NOARP == 0
	copy(d.mac[:], a.HardwareAddr)
	return d
}

// noRoute lists the errors by which the kernel says that it has no way to an address.
var noRoute = []error{
	unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EPERM, unix.EINVAL, unix.ENODEV, unix.ENETDOWN,
}

// lookup asks the kernel for the route of a packet that this host sends from one address to
// another. Everything but unicast through an Ethernet device gives no route.
func (r *Resolver) lookup(addr, from netip.Addr) (route, error) {
	if !addr.IsValid() || addr.IsMulticast() || addr.IsUnspecified() {
		return route{}, nil
	}
	options := &netlink.RouteGetOptions{}
	if from.IsValid() && !from.IsUnspecified() {
		options.SrcAddr = from.AsSlice()
	}
	if zone := addr.Zone(); zone != "" {
		index, ok := r.indexOf(zone)
		if !ok {
			return route{}, nil
		}
		options.OifIndex = index
	}
	routes, err := r.handle.RouteGetWithOptions(addr.AsSlice(), options)
	for _, known := range noRoute {
		if errors.Is(err, known) {
			return route{}, nil
		}
	}
	if err != nil {
		return route{}, fmt.Errorf("looking up the route to %s: %w", addr, err)
	}
	if len(routes) == 0 {
		return route{}, nil
	}
	return routeOf(&routes[0], addr, from), nil
}

func routeOf(got *netlink.Route, addr, from netip.Addr) route {
	if got.Type != unix.RTN_UNICAST || got.Encap != nil || got.LinkIndex == 0 {
		if got.Type == unix.RTN_UNICAST {
			return route{kernel: true, via: neigh.Key{IfIndex: got.LinkIndex}}
		}
		return route{kernel: got.Type == unix.RTN_LOCAL}
	}
	rt := route{via: neigh.Key{IfIndex: got.LinkIndex, Addr: addr.WithZone("")}, mtu: got.MTU, source: from}
	if !from.IsValid() || from.IsUnspecified() {
		rt.source, _ = netip.AddrFromSlice(got.Src)
		rt.source = rt.source.Unmap()
	}
	if gateway, ok := netip.AddrFromSlice(got.Gw); ok {
		rt.via.Addr, rt.gateway = gateway.Unmap(), true
	}
	if via, ok := got.Via.(*netlink.Via); ok {
		gateway, ok := netip.AddrFromSlice(via.Addr)
		if !ok {
			return route{}
		}
		rt.via.Addr, rt.viaOtherFamily, rt.gateway = gateway, true, true
	}
	return rt
}

// indexOf finds the device of an IPv6 zone.
func (r *Resolver) indexOf(zone string) (int, bool) {
	for index, d := range r.devices {
		if d.name == zone {
			return index, true
		}
	}
	return 0, false
}
