// SPDX-License-Identifier: Apache-2.0

package nexthop

import "culvert/internal/netdev"

// Not every device takes frames that XDP redirects to it: some drivers never do, and a veth does
// only while its peer listens with NAPI. Such a device is no way to go, or frames would be lost
// that the kernel could have sent. The kernel sends no notification over rtnetlink when this
// changes, so it is asked now and then.

// isDeaf tells whether frames redirected to the device would be lost.
func (r *Resolver) isDeaf(ifIndex int) bool {
	deaf, asked := r.deaf[ifIndex]
	if !asked {
		deaf = r.askDevice(ifIndex)
		r.deaf[ifIndex] = deaf
	}
	return deaf
}

func (r *Resolver) askDevice(ifIndex int) (deaf bool) {
	if r.xdp == nil {
		return false
	}
	acts, ok := r.xdp.XDPActs(ifIndex)
	return ok && acts&netdev.ActXmit == 0
}

// askDevices renews what is known of the devices in use.
func (r *Resolver) askDevices() {
	for ifIndex, before := range r.deaf {
		if _, ok := r.devices[ifIndex]; !ok {
			delete(r.deaf, ifIndex)
			continue
		}
		now := r.askDevice(ifIndex)
		if now == before {
			continue
		}
		r.deaf[ifIndex] = now
		for t := range r.targets {
			if t.route.via.ifIndex == ifIndex {
				r.update(t)
			}
		}
	}
}
