// SPDX-License-Identifier: Apache-2.0

package netdev

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
	if Ethernet(l) {
		return nil
	}
	return fmt.Errorf("interface %s carries packets without an Ethernet header (link type %s), which culvert cannot read: "+
		"attach to the interface by which these packets come in encapsulated, or filter them with nftables", p.Name, l.Attrs().EncapType)
}

// Ethernet tells whether the frames of an interface have an Ethernet header. Those of the loopback interface have one of zeros.
func Ethernet(l netlink.Link) bool {
	kind := l.Attrs().EncapType
	return kind == "ether" || kind == "loopback"
}
