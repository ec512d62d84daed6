// SPDX-License-Identifier: Apache-2.0

package nexthop

import "culvert/internal/host/netdev"

// ability says which frames XDP can redirect to a device. Some drivers take none, and a veth takes
// them only while its peer uses NAPI. Frames redirected to such a device would be lost, so the kernel
// has to send them. It sends no rtnetlink notification when this changes, so the Resolver asks again
// periodically.
type ability struct {
	noXmit     bool // takes none
	linearOnly bool // takes only frames of one buffer
}

// ability returns which frames can be redirected to a device.
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
		noXmit:     ok && !r.generic && acts&netdev.ActXmit == 0,
		linearOnly: ok && acts&netdev.ActXmitSG == 0,
	}
}

// askDevices asks again for the abilities of the devices in use.
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
