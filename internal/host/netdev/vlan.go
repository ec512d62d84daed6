// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// VLANTag is added to a VLAN ID (0 to 4095), so that the tag of ID 0 differs from no tag.
const VLANTag = 0x1000

// BelowVLAN returns the name of the device below a VLAN device, "" for any other device.
func BelowVLAN(index int) (string, error) {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return "", fmt.Errorf("reading interface %d: %w", index, err)
	}
	v, is := l.(*netlink.Vlan)
	if !is {
		return "", nil
	}
	below, err := netlink.LinkByIndex(v.ParentIndex)
	if err != nil || v.NetNsID >= 0 {
		return "the device below it", nil // it is in another network namespace
	}
	return cmp.Or(below.Attrs().Name, "the device below it"), nil
}

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

// rxVLAN is the ethtool flag of devices that take VLAN tags off (ETH_FLAG_RXVLAN of linux/ethtool.h).
const rxVLAN = 1 << 8

// CheckTags returns an error for a device that takes VLAN tags off before XDP sees the frame, with the command that mends it. A
// program would take packets of a VLAN for untagged ones. A veth never takes tags off, whatever its flag says, and for a bond its members do.
func CheckTags(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return fmt.Errorf("interface %s does not exist: see 'ip link'", name)
		}
		return fmt.Errorf("looking at interface %s: %w", name, err)
	}
	return checkTags(l, name)
}

// checkTags is CheckTags for a link, of which who is the name and whatever makes it clear.
func checkTags(l netlink.Link, who string) error {
	name := l.Attrs().Name
	if l.Type() == "veth" {
		return nil
	}
	bond, err := BondOf(l.Attrs().Index)
	if err != nil {
		return fmt.Errorf("looking at interface %s: %w", name, err)
	}
	if bond != nil {
		for _, m := range bond.Members {
			member, err := netlink.LinkByIndex(m.Index)
			if err != nil {
				continue // it has left meanwhile
			}
			if err := checkTags(member, m.Name+", which is a member of "+name+","); err != nil {
				return err
			}
		}
		return nil
	}
	flags, err := Ethtool(name, unix.ETHTOOL_GFLAGS, 0)
	if err == nil && flags&rxVLAN != 0 {
		return fmt.Errorf("%s takes VLAN tags off before culvert sees them: ethtool -K %s rxvlan off", who, name)
	}
	return nil
}

// CheckVLANs is CheckTags for what passes packets to the host, such as a filter: without VLAN devices, the kernel drops tagged packets
// after that anyway.
func CheckVLANs(name string) error {
	err := CheckTags(name)
	if err == nil {
		return nil
	}
	below, linkErr := netlink.LinkByName(name)
	links, listErr := netlink.LinkList()
	if linkErr != nil || listErr != nil {
		return err
	}
	for _, l := range links {
		if l.Type() == "vlan" && l.Attrs().ParentIndex == below.Attrs().Index {
			return err
		}
	}
	return nil
}
