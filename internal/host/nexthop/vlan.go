// SPDX-License-Identifier: Apache-2.0

package nexthop

// portOf returns the device to which frames that leave by a device are redirected, and the tag to add.
// A VLAN device takes no redirected frames. They go to the device below it, with the tag that the VLAN
// device would have added. ok is false if tags are off, or if a bridge, bond or the like takes the
// frames of either device.
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

// enslaved reports whether a device belongs to a bridge, bond or the like, which takes its packets. A
// VRF does not.
func (r *Resolver) enslaved(d device) bool { return d.master != 0 && r.devices[d.master].kind != "vrf" }

// leavesBy reports whether packets to a target leave by a device, or by a VLAN device above it.
func (r *Resolver) leavesBy(t *Target, index int) bool {
	via := t.route.via.IfIndex
	return via == index || r.devices[via].parent == index
}
