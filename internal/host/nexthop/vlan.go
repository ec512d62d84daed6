// SPDX-License-Identifier: Apache-2.0

package nexthop

// A VLAN device takes no redirected frames. They go to the device below it, with the tag in them that
// the VLAN device would have put on, and as long as nothing between the two has a say in it.

// portOf finds the device that frames by a device are redirected to, and the tag that they need.
func (r *Resolver) portOf(index int) (port int, vlan uint16, ok bool) {
	dev := r.devices[index]
	if dev.kind != "vlan" {
		return index, 0, true
	}
	below := r.devices[dev.parent]
	if !r.vlan || dev.vlan == 0 || !below.usable || below.kind == "vlan" || r.enslaved(dev) || r.enslaved(below) {
		return 0, 0, false
	}
	return dev.parent, dev.vlan, true
}

// enslaved tells whether a device belongs to a bridge, bond or the like, which has its packets. A VRF
// is only about routes.
func (r *Resolver) enslaved(d device) bool { return d.master != 0 && r.devices[d.master].kind != "vrf" }

// leavesBy tells whether packets to a target go through a device, also if that is the one below a
// VLAN device.
func (r *Resolver) leavesBy(t *Target, index int) bool {
	via := t.route.via.IfIndex
	return via == index || r.devices[via].parent == index
}
