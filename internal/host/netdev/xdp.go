// SPDX-License-Identifier: Apache-2.0

package netdev

import "github.com/vishvananda/netlink/nl"

// XDPFamily is the generic netlink family that says what drivers can do with XDP. It exists since Linux 6.3.
const XDPFamily = "netdev"

// Bits of what a driver can do: enum netdev_xdp_act of linux/netdev.h.
const (
	ActBasic    = 1 << 0 // pass, drop, abort, send back
	ActRedirect = 1 << 1 // redirect from this device
	ActXmit     = 1 << 2 // frames may be redirected to this device
	ActRxSG     = 1 << 5 // multi-buffer packets
	ActXmitSG   = 1 << 6 // multi-buffer frames may be redirected to this device
)

const (
	cmdDevGet       = 1
	attrIfindex     = 1
	attrXDPFeatures = 3
)

// XDPActs returns what the driver of a device can do, as bits such as ActXmit. ok is false if the kernel
// does not say. The client must be of XDPFamily.
func (c *Client) XDPActs(ifindex int) (acts uint64, ok bool) {
	attrs, err := c.Get(cmdDevGet, nl.NewRtAttr(attrIfindex, nl.Uint32Attr(uint32(ifindex))))
	if err != nil {
		return 0, false
	}
	for _, a := range attrs {
		if a.Kind == attrXDPFeatures && len(a.Value) == 8 {
			return nl.NativeEndian().Uint64(a.Value), true
		}
	}
	return 0, false
}
