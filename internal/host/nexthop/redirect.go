// SPDX-License-Identifier: Apache-2.0

package nexthop

import "culvert/internal/host/netdev"

// Not every device takes frames that XDP redirects to it: some drivers never do, and a veth does
// only while its peer listens with NAPI. Such a device is no way to go, or frames would be lost
// that the kernel could have sent. The kernel sends no notification over rtnetlink when this
// changes, so it is asked now and then.

// ability is how a device takes redirected frames.
type ability struct {
	deaf       bool // not at all
	linearOnly bool // only those of one buffer
}

// ability tells how the device takes redirected frames.
func (r *Resolver) ability(ifIndex int) ability {
	a, asked := r.abilities[ifIndex]
	if !asked {
		a = r.askDevice(ifIndex)
		r.abilities[ifIndex] = a
	}
	return a
}

func (r *Resolver) askDevice(ifIndex int) ability {
	if r.xdp == nil {
		return ability{}
	}
	acts, ok := r.xdp.XDPActs(ifIndex)
	return ability{
		deaf:       ok && acts&netdev.ActXmit == 0,
		linearOnly: ok && acts&netdev.ActXmitSG == 0,
	}
}

// askDevices renews what is known of the devices in use.
func (r *Resolver) askDevices() {
	for ifIndex, before := range r.abilities {
		if _, ok := r.devices[ifIndex]; !ok {
			delete(r.abilities, ifIndex)
			continue
		}
		now := r.askDevice(ifIndex)
		if now == before {
			continue
		}
		r.abilities[ifIndex] = now
		for t := range r.targets {
			if r.leavesBy(t, ifIndex) {
				r.update(t)
			}
		}
	}
}
