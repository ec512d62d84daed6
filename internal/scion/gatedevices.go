// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// loopbackIndex is the index of the loopback device of every network namespace (LOOPBACK_IFINDEX).
const loopbackIndex = 1

func isLoopback(index int) bool { return index == loopbackIndex }

// devicesWith returns the indexes of the devices of the current network namespace that have the address a, in ascending
// order.
func devicesWith(a netip.Addr) ([]int, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket to list addresses: %w", err)
	}
	defer handle.Close()
	family := netlink.FAMILY_V6
	if a.Is4() {
		family = netlink.FAMILY_V4
	}
	addrs, err := handle.AddrList(nil, family)
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	var found []int
	for _, one := range addrs {
		if b, ok := netip.AddrFromSlice(one.IP); ok && b.Unmap() == a.WithZone("") {
			found = append(found, one.LinkIndex)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// deviceNames joins the names of devices with commas. A device that is gone appears by its index.
func deviceNames(indexes []int) string {
	var names []string
	for _, index := range indexes {
		name := fmt.Sprintf("ifindex %d", index)
		if i, err := net.InterfaceByIndex(index); err == nil {
			name = i.Name
		}
		names = append(names, name)
	}
	return strings.Join(names, ",")
}
