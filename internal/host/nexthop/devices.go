// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// devices is the part of a Target that belongs to TrackDevices.
type devices struct {
	bound  int
	report func([]int)
	last   []int
}

// TrackDevices follows the devices by which packets to addr leave if a socket of this host sends them
// from the local address from. These are the devices of all next hops, the loopback device if addr is
// this host's own, and none without a route. If a device is in a VRF, the VRF is included, because the
// kernel reports it to sockets as the device of incoming packets. Neighbors do not matter. bound is the
// index of the device to which the socket is bound, 0 for none. report is called with the indexes in
// ascending order, at once and with every change. See Track for what it may do.
func (r *Resolver) TrackDevices(addr, from netip.Addr, bound int, report func([]int)) *Target {
	t := &Target{resolver: r, addr: addr.Unmap(), from: from.Unmap(), devices: &devices{bound: bound, report: report}}
	r.do(func() {
		r.targets[t] = struct{}{}
		r.dirty[t] = struct{}{}
	})
	return t
}

func (r *Resolver) evaluateDevices(t *Target) {
	found, err := r.lookupDevices(t.addr, t.from, t.devices.bound)
	t.evaluated = time.Now()
	if err != nil {
		r.onError(err) // the last result stays until the next lookup
		if t.known {
			return
		}
	}
	if t.known && slices.Equal(found, t.devices.last) {
		return
	}
	t.known, t.devices.last = true, found
	t.devices.report(slices.Clone(found))
}

// lookupDevices asks the kernel for the next hop that a socket would use, and for all next hops of that route.
func (r *Resolver) lookupDevices(addr, from netip.Addr, bound int) ([]int, error) {
	if !addr.IsValid() {
		return nil, nil
	}
	o := netlink.RouteGetOptions{OifIndex: bound}
	if from.IsValid() && !from.IsUnspecified() {
		o.SrcAddr = from.AsSlice()
	}
	if zone := addr.Zone(); zone != "" && bound == 0 {
		index, ok := r.indexOf(zone)
		if !ok {
			return nil, nil
		}
		o.OifIndex = index
	}
	var found []int
	for _, all := range []bool{false, true} {
		o.FIBMatch = all
		routes, err := r.handle.RouteGetWithOptions(addr.AsSlice(), &o)
		if slices.ContainsFunc(noRoute, func(known error) bool { return errors.Is(err, known) }) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("looking up the route to %s: %w", addr, err)
		}
		for i := range routes {
			found = append(found, devicesOf(&routes[i])...)
		}
		// For a local address, the entry with FIBMatch has the device that has the address. It does not count.
		if slices.ContainsFunc(routes, func(rt netlink.Route) bool { return rt.Type != unix.RTN_UNICAST }) {
			break
		}
	}
	for _, index := range found {
		if master := r.devices[index].master; master != 0 && r.devices[master].kind == "vrf" {
			found = append(found, master)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// devicesOf lists the devices of a route's next hops.
func devicesOf(rt *netlink.Route) (found []int) {
	if rt.Type != unix.RTN_UNICAST && rt.Type != unix.RTN_LOCAL {
		return nil
	}
	if rt.LinkIndex != 0 {
		found = append(found, rt.LinkIndex)
	}
	for _, hop := range rt.MultiPath {
		if hop.LinkIndex != 0 {
			found = append(found, hop.LinkIndex)
		}
	}
	return found
}
