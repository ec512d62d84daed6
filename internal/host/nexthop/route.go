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

// route is where the kernel would send packets to a target. The zero value means that there is no usable route.
type route struct {
	// via is the neighbor. If its address is invalid, only the kernel can send there, by its device if that is set.
	via neigh.Key
	// gateway is true if the neighbor is not the target itself.
	gateway bool
	// mtu is the route's own MTU, 0 for none.
	mtu int
	// viaOtherFamily is true for an IPv4 route with an IPv6 gateway.
	viaOtherFamily bool
	// kernel is true for a route that only the kernel can use: to this host, or into a tunnel.
	kernel bool
	// source is the local address of packets, invalid if there is none.
	source netip.Addr
}

// device holds the properties of a network interface that next hops depend on.
type device struct {
	name   string
	mac    [6]byte
	mtu    int
	usable bool // ready, and Ethernet with neighbors
	ready  bool // up and with carrier
	// master is the index of the bridge, bond or VRF that the device belongs to.
	master int
	kind   string // type in netlink: vlan, vrf and so on
	// parent is the index of the device below a VLAN device, and vlan the tag (netdev.VLANOf).
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

// noRoute lists the errors by which the kernel says that it has no route to an address.
var noRoute = []error{
	unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EPERM, unix.EINVAL, unix.ENODEV, unix.ENETDOWN,
}

// lookup asks the kernel for the route of a packet that this host sends from from to addr. It returns
// the zero route if there is none.
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

// indexOf returns the index of the device that an IPv6 zone names.
func (r *Resolver) indexOf(zone string) (int, bool) {
	for index, d := range r.devices {
		if d.name == zone {
			return index, true
		}
	}
	return 0, false
}
