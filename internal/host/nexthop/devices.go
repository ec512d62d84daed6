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

// devices is what is followed of a target whose answers come by the devices that its routes lead by.
type devices struct {
	bound  int
	report func([]int)
	last   []int
}

// TrackDevices follows the devices that packets from a socket of this host at the local address from
// would leave by to addr: all of them where there are several next hops, loopback where addr is this
// host's own, none without a route. Neighbors do not matter. With a device goes the VRF that it is
// in, which the kernel gives sockets as the device of what comes in. Bound is the index of the device that
// the socket is bound to, 0 for none. Report gets the indexes in ascending order, at once and with
// every change; see Track for what it may do.
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
		r.onError(err) // what was found before stays, until the next look
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

// lookupDevices asks the kernel for the route as a socket would take it, and for all of its next hops.
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
			found = append(found, leads(&routes[i])...)
		}
		// The entry that a local address was found by names the device which has it.
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

// leads lists the devices that a route names.
func leads(rt *netlink.Route) (found []int) {
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
