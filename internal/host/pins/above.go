// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"fmt"
	"net"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"culvert/internal/host/netdev"
)

// CheckAbove returns an error if an interface cannot be attached to because of the bond or the bridge that it is in: a bond that is among
// named too, or a device that carries a program whose link is not pinned in dir. The kernel takes no program below another one.
func CheckAbove(dir string, p *net.Interface, named []*net.Interface) error {
	dev, err := netlink.LinkByIndex(p.Index)
	if err != nil {
		return fmt.Errorf("reading interface %s: %w", p.Name, err)
	}
	above := masterOf(dev)
	if above == nil {
		return nil
	}
	index := above.Attrs().Index
	if netdev.BondAbove(dev) != "" && slices.ContainsFunc(named, func(q *net.Interface) bool { return q.Index == index }) {
		return fmt.Errorf("attaching to %s: it is a member of %s and runs the program of that: name only one of them", p.Name, above.Attrs().Name)
	}
	if _, own := On(dir, index); own {
		return nil
	}
	return occupied(p.Name, above)
}

// masterOf returns the bond, the bridge or the like that a device is in, nil if it is in none.
func masterOf(dev netlink.Link) netlink.Link {
	if dev.Attrs().MasterIndex == 0 {
		return nil
	}
	above, err := netlink.LinkByIndex(dev.Attrs().MasterIndex)
	if err != nil {
		return nil // it was deleted meanwhile
	}
	return above
}

// occupied is the error for an interface below a device that carries an XDP program, nil if that carries none.
func occupied(name string, above netlink.Link) error {
	a := above.Attrs()
	if a.Xdp == nil || !a.Xdp.Attached {
		return nil
	}
	return fmt.Errorf("attaching to %s: it is in %s, which carries XDP program %d already (%s), and the kernel takes no other below that: detach that one first "+
		"('culvert doctor -i %s' has the command)", name, a.Name, a.Xdp.ProgId, ownerOf(ebpf.ProgramID(a.Xdp.ProgId)), a.Name)
}
