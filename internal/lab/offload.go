// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"

	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
)

// checksumOffloadOff makes the stack finish checksums before a packet enters a veth. Otherwise XDP at the other end sees
// unfinished ones.
func checksumOffloadOff(ifname string) error {
	for name, cmd := range map[string]uint32{
		"rx checksum offload": unix.ETHTOOL_SRXCSUM,
		"tx checksum offload": unix.ETHTOOL_STXCSUM,
	} {
		if _, err := netdev.Ethtool(ifname, cmd, 0); err != nil {
			return fmt.Errorf("switch %s of %s off: %w", name, ifname, err)
		}
	}
	return nil
}

// groOn turns on GRO, and NAPI with it. A frame that XDP redirects into a veth is lost unless the peer has NAPI. The device has
// to be up, since the kernel otherwise does not mark its peer as a target of redirects.
func groOn(ifname string) error {
	if _, err := netdev.Ethtool(ifname, unix.ETHTOOL_SGRO, 1); err != nil {
		return fmt.Errorf("switch gro of %s on: %w", ifname, err)
	}
	return nil
}

// ethFlagTxVLAN is ETH_FLAG_TXVLAN of linux/ethtool.h, a bit of ETHTOOL_GFLAGS.
const ethFlagTxVLAN = 1 << 7

// vlanOffloadOff makes the stack put VLAN tags into packets. A veth otherwise passes the tag beside the packet, where XDP at
// the other end does not see it.
func vlanOffloadOff(ifname string) error {
	flags, err := netdev.Ethtool(ifname, unix.ETHTOOL_GFLAGS, 0)
	if err == nil {
		_, err = netdev.Ethtool(ifname, unix.ETHTOOL_SFLAGS, flags&^ethFlagTxVLAN)
	}
	if err != nil {
		return fmt.Errorf("switch tx vlan offload of %s off: %w", ifname, err)
	}
	return nil
}
