// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// CheckEthernet returns an error for an interface whose frames have no Ethernet header: a tun device, WireGuard, PPP, a tunnel of IP
// packets. The kernel runs programs on these in generic mode, but programs would take the IP header for one of Ethernet.
func CheckEthernet(p *net.Interface) error {
	l, err := netlink.LinkByIndex(p.Index)
	if err != nil {
		return fmt.Errorf("reading interface %s: %w", p.Name, err)
	}
	switch kind := l.Attrs().EncapType; kind {
	case "ether", "loopback":
		return nil
	default:
		return fmt.Errorf("interface %s carries packets without an Ethernet header (link type %s), which culvert cannot read: "+
			"attach to the interface by which these packets come in encapsulated, or filter them with nftables", p.Name, kind)
	}
}
