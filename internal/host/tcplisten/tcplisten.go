// SPDX-License-Identifier: Apache-2.0

// Package tcplisten says whether a process could listen on a TCP address, without trying: even a socket that is closed at once
// would be in the way of the process that starts at that moment.
package tcplisten

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"culvert/internal/host/hostaddr"
	"culvert/internal/host/procnet"
)

// stateListen is TCP_LISTEN of net/tcp_states.h.
const stateListen = 10

// Check returns an error if an address, as "127.0.0.1:9441" or ":9441", is not one of this network namespace, or if another
// process listens there. What the process served holds is not in the way.
func Check(address string, served int) error {
	at, err := resolve(address)
	if err != nil {
		return err
	}
	if err := elsewhere(at); err != nil {
		return err
	}
	if at.Port() == 0 {
		return nil // the kernel chooses one
	}
	inodes, err := listeners(at)
	if err != nil || len(inodes) == 0 {
		return err
	}
	for _, h := range procnet.Holders(inodes) {
		if served == 0 || h.PID != served {
			return fmt.Errorf("%s is in use by %s: stop that ('ss -tlnp'), or use another port", address, h)
		}
	}
	return nil
}

// Elsewhere returns an error if an address is not one of this network namespace.
func Elsewhere(address string) error {
	at, err := resolve(address)
	if err != nil {
		return err
	}
	return elsewhere(at)
}

func resolve(address string) (netip.AddrPort, error) {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	at := resolved.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()), nil
}

func elsewhere(at netip.AddrPort) error {
	if !at.Addr().IsValid() || at.Addr().IsUnspecified() || nonlocal(at.Addr()) {
		return nil
	}
	there, err := hostaddr.Elsewhere([]netip.AddrPort{at})
	if err == nil && len(there) > 0 {
		err = fmt.Errorf("this host does not have the address %s", at.Addr())
	}
	return err
}

// nonlocal tells whether the kernel lets processes bind addresses that the host does not have.
func nonlocal(a netip.Addr) bool {
	family := "ipv6"
	if a.Is4() {
		family = "ipv4"
	}
	b, err := os.ReadFile("/proc/sys/net/" + family + "/ip_nonlocal_bind")
	return err == nil && strings.TrimSpace(string(b)) == "1"
}

// listeners returns the addresses, by inode, of the sockets that keep another one from listening at an address.
func listeners(at netip.AddrPort) (map[uint64]netip.AddrPort, error) {
	sockets, err := procnet.Sockets("tcp")
	if err != nil {
		return nil, err
	}
	inodes := make(map[uint64]netip.AddrPort)
	for _, s := range sockets {
		if s.State == stateListen && s.Addr.Port() == at.Port() && meet(s.Addr.Addr(), at.Addr()) {
			inodes[s.Inode] = s.Addr
		}
	}
	return inodes, nil
}

// meet tells whether a socket at held keeps Go from listening at another address with the same port. For an unspecified address,
// also 0.0.0.0, Go listens on both IPv6 and IPv4.
func meet(held, at netip.Addr) bool {
	return held == at || !at.IsValid() || at.IsUnspecified() ||
		held == netip.IPv6Unspecified() || held == netip.IPv4Unspecified() && at.Is4()
}
