// SPDX-License-Identifier: Apache-2.0

package netdev

import "github.com/vishvananda/netlink"

// BridgeAbove returns the name of the bridge of which a device is a port, "" for none.
func BridgeAbove(l netlink.Link) string {
	master := l.Attrs().MasterIndex
	if master == 0 {
		return ""
	}
	b, err := netlink.LinkByIndex(master)
	if err != nil || b.Type() != "bridge" {
		return ""
	}
	return b.Attrs().Name
}
