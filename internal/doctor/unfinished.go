// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"culvert/internal/host/netdev"
)

// fromMachines tells whether the program behind a tap says which checksums are unfinished: that of a virtual machine does.
func fromMachines(l netlink.Link) bool {
	t, ok := l.(*netlink.Tuntap)
	return ok && t.Mode == netlink.TUNTAP_MODE_TAP && t.Flags&netlink.TUNTAP_VNET_HDR != 0
}

// leavesSums tells whether packets come in by a device whose checksum the sender has left to its card, which has left it to the receiver.
func leavesSums(l netlink.Link) bool {
	return l.Type() == "veth" || fromMachines(l) || l.Type() == "device" && netdev.ReadDriver(l.Attrs().Name) == "virtio_net"
}

// checkUnfinished looks for checksums that nobody finishes. In native mode XDP gets the packets of a virtual machine as they were
// written to a tap, and redirects them so. In generic mode the kernel leaves the rest to the card that they leave by, without a look
// at whether that does it. Veths have checks of their own.
func checkUnfinished(n netif) *Finding {
	s := n.stages
	if n.peer != nil || !s.SCION && !s.Route && !s.LB {
		return nil
	}
	f := &Finding{Status: Warn, Check: "checksum", Command: "where the packets are sent: ethtool -K DEV tx off"}
	switch {
	case !n.generic() && n.fromMachines:
		f.Finding = "packets of a virtual machine come in, and are forwarded, with unfinished checksums if tx offload is on in the machine"
	case n.generic() && len(n.leaveSums) > 0 && !n.offloads.txChecksum():
		f.Finding = fmt.Sprintf("tx offload is off: packets with unfinished checksums, as may come in by %s, leave so in generic mode",
			strings.Join(n.leaveSums[:min(3, len(n.leaveSums))], ", "))
		if n.driver != "tun" {
			f.Command = "ethtool -K " + n.name + " tx on"
		}
	default:
		return nil
	}
	return f
}
