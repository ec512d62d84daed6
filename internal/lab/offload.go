// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"

	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
)

// checksumOffloadOff makes a veth finish its checksums: it hands packets over with them unfinished
// otherwise, and an XDP program sees that.
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

// groOn turns on NAPI with GRO: a frame that XDP redirects into a veth whose peer has no NAPI is
// lost. The device has to be up, or the kernel does not note that its peer may be redirected to.
func groOn(ifname string) error {
	if _, err := netdev.Ethtool(ifname, unix.ETHTOOL_SGRO, 1); err != nil {
		return fmt.Errorf("switch gro of %s on: %w", ifname, err)
	}
	return nil
}

// The bits of ETHTOOL_GFLAGS, of linux/ethtool.h.
const ethFlagTxVLAN = 1 << 7

// vlanOffloadOff makes a device put the tag of a VLAN into the packet before it sends it. A veth hands it over
// beside the packet otherwise, and an XDP program at the other end does not see it.
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
