// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Assign gives the device an address with its subnet. An IPv6 address is usable when Assign returns. The device gets no
// link-local address.
func (e End) Assign(p netip.Prefix) error {
	if p.Addr().Is6() {
		if err := e.enableIPv6(); err != nil {
			return err
		}
	}
	dev, err := e.Netns.nl.LinkByIndex(e.Index)
	if err != nil {
		return fmt.Errorf("find %s: %w", e.Name, err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{
		IP:   p.Addr().AsSlice(),
		Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
	}}
	if p.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := e.Netns.nl.AddrAdd(dev, addr); err != nil {
		return fmt.Errorf("give %s the address %s: %w", e.Name, p, err)
	}
	return e.waitLocal(p.Addr())
}

// waitLocal waits until the kernel accepts packets to the address. For IPv6 it finishes the assignment in the background,
// even without duplicate address detection.
func (e End) waitLocal(addr netip.Addr) error {
	const limit = 5 * time.Second
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		routes, err := e.Netns.nl.RouteGet(addr.AsSlice())
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
	}
	return fmt.Errorf("wait for the address %s on %s: the kernel does not take packets to it after %s", addr, e.Name, limit)
}

// enableIPv6 turns IPv6 on. It turns link-local addresses off first, because they make the kernel send messages.
func (e End) enableIPv6() error {
	return e.Netns.Do(func() error {
		for _, set := range []struct{ name, value string }{{"addr_gen_mode", "1"}, {"disable_ipv6", "0"}} {
			path := "/proc/sys/net/ipv6/conf/" + e.Name + "/" + set.name
			if err := os.WriteFile(path, []byte(set.value), 0); err != nil {
				return fmt.Errorf("turn IPv6 on for %s: %w", e.Name, err)
			}
		}
		return nil
	})
}

// SetNeighbor adds a permanent neighbor entry to the device, so that the kernel never resolves the address.
func (e End) SetNeighbor(addr netip.Addr, mac net.HardwareAddr) error {
	n := &netlink.Neigh{
		LinkIndex:    e.Index,
		State:        netlink.NUD_PERMANENT,
		IP:           addr.AsSlice(),
		HardwareAddr: mac,
	}
	if err := e.Netns.nl.NeighSet(n); err != nil {
		return fmt.Errorf("tell %s the Ethernet address of %s: %w", e.Name, addr, err)
	}
	return nil
}
