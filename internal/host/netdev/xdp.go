// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

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

// Egress says which frames XDP can redirect to a device. Some drivers take none, and a veth takes them only while its peer
// uses NAPI. Other frames that are redirected there are lost.
type Egress struct {
	None       bool // takes none
	LinearOnly bool // takes only frames of one buffer
}

// Egress asks which frames XDP can redirect to a device. In generic mode the kernel sends frames as the stack does, and every
// device takes them. The client may be nil: the kernel has no XDPFamily then. It does not say what drivers take, so they count
// as able, but for frames of several buffers. The kernel has refused to redirect those anywhere until the change
// that gave it the family. They count as refused also if a device does not answer.
func (c *Client) Egress(ifindex int, generic bool) Egress {
	if c == nil {
		return Egress{LinearOnly: true}
	}
	acts, ok := c.XDPActs(ifindex)
	return Egress{None: ok && !generic && acts&ActXmit == 0, LinearOnly: acts&ActXmitSG == 0}
}

// FirstBuffer is the least number of bytes in the first of several buffers, with the drivers of kernels without XDPFamily
// (bpf/core/next_hop.h).
const FirstBuffer = 1024

// OneBufferOnly tells whether the kernel has no XDPFamily, so that no device takes redirected frames of several buffers.
var OneBufferOnly = sync.OnceValue(func() bool {
	c, err := Open(XDPFamily)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, unix.ENOENT)
})
