// SPDX-License-Identifier: Apache-2.0

package netdev

import "github.com/vishvananda/netlink"

// VLANTag is added to a VLAN ID (0 to 4095), so that the tag of ID 0 differs from no tag.
const VLANTag = 0x1000

// VLANOf returns the index of the device below a VLAN device, and VLANTag plus the VLAN ID. Both are 0 for other
// devices, and for VLAN devices for which only the kernel can tag frames: those of 802.1ad, those that set priorities
// in tags, and those above a device of another network namespace.
func VLANOf(l netlink.Link) (parent int, tag uint16) {
	a := l.Attrs()
	v, ok := l.(*netlink.Vlan)
	// The index of a parent in another network namespace means something else here.
	if !ok || a.ParentIndex <= 0 || a.NetNsID >= 0 ||
		v.VlanProtocol != netlink.VLAN_PROTOCOL_8021Q || len(v.EgressQosMap) != 0 {
		return 0, 0
	}
	return a.ParentIndex, VLANTag | uint16(v.VlanId)
}
