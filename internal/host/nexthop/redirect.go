// SPDX-License-Identifier: Apache-2.0

package nexthop

import "culvert/internal/host/netdev"

// ability returns which frames can be redirected to a device. Frames that it does not take would be lost, so the kernel
// has to send them. It sends no rtnetlink notification when this changes, so the Resolver asks again
// periodically.
func (r *Resolver) ability(ifIndex int) netdev.Egress {
	a, asked := r.abilities[ifIndex]
	if !asked {
		a = r.xdp.Egress(ifIndex, r.generic)
		r.abilities[ifIndex] = a
	}
	return a
}

// askDevices asks again for the abilities of the devices in use.
func (r *Resolver) askDevices() {
	for ifIndex, before := range r.abilities {
		if _, ok := r.devices[ifIndex]; !ok {
			delete(r.abilities, ifIndex)
			continue
		}
		now := r.xdp.Egress(ifIndex, r.generic)
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
