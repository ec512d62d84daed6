// SPDX-License-Identifier: Apache-2.0

package netdev

import "github.com/vishvananda/netlink"

// VLANTag is added to the ID of a VLAN (0 to 4095), so that no tag at all can be told from one of ID 0.
const VLANTag = 0x1000

// VLANOf gives the index of the device below a VLAN device, and VLANTag + its ID. Both are 0 for other devices,
// and for VLAN devices whose frames only the kernel can make: of 802.1ad, with priorities in their tags, or above
// a device of another network namespace.
func VLANOf(l netlink.Link) (parent int, tag uint16) {
	a := l.Attrs()
	v, ok := l.(*netlink.Vlan)
	// In another network namespace the parent's index means something else here.
	if !ok || a.ParentIndex <= 0 || a.NetNsID >= 0 ||
		v.VlanProtocol != netlink.VLAN_PROTOCOL_8021Q || len(v.EgressQosMap) != 0 {
		return 0, 0
	}
	return a.ParentIndex, VLANTag | uint16(v.VlanId)
}
