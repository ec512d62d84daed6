// SPDX-License-Identifier: Apache-2.0

// Package udpsock finds the other processes that have UDP sockets on addresses.
package udpsock

import (
	"net/netip"
	"slices"

	"culvert/internal/host/procnet"
)

// Others lists the other processes that have a socket bound to exactly one of the addresses, in the
// network namespace of the calling thread. It keeps the order of the addresses.
func Others(addrs []netip.AddrPort) ([]procnet.Holder, error) {
	inodes := map[uint64]netip.AddrPort{}
	sockets, err := procnet.Sockets("udp")
	if err != nil {
		return nil, err
	}
	for _, s := range sockets {
		if slices.Contains(addrs, s.Addr) {
			inodes[s.Inode] = s.Addr
		}
	}
	if len(inodes) == 0 {
		return nil, nil
	}
	holders := procnet.Holders(inodes)
	slices.SortFunc(holders, func(a, b procnet.Holder) int {
		if n := slices.Index(addrs, a.Addr) - slices.Index(addrs, b.Addr); n != 0 {
			return n
		}
		return a.PID - b.PID
	})
	return slices.Compact(holders), nil
}
