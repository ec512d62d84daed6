// SPDX-License-Identifier: Apache-2.0

// Package hostaddr says which addresses belong to this network namespace.
package hostaddr

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Elsewhere returns the services whose address does not belong to the calling thread's network namespace.
func Elsewhere(services []netip.AddrPort) (elsewhere []netip.AddrPort, err error) {
	if len(services) == 0 {
		return nil, nil
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list the addresses: %w", err)
	}
	here := make(map[netip.Addr]bool)
	for _, a := range addrs {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			here[addr.Unmap()] = true
		}
	}
	for _, s := range services {
		addr := s.Addr().Unmap()
		if here[addr] {
			continue
		}
		// Routes of type local also make addresses belong to the namespace.
		routes, err := netlink.RouteGet(addr.AsSlice())
		if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_LOCAL {
			elsewhere = append(elsewhere, s)
		}
	}
	return elsewhere, nil
}
