// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/config"
)

// Interfaces returns the names of the network interfaces of the current network namespace that have the router's own
// underlay addresses, sorted. Loopback is left out: the slow path serves it. The errors are about addresses that no
// interface has or whose interface is down, each once, and name their fields in the topology.
func (r *Router) Interfaces() ([]string, error) {
	carriers, err := addressCarriers()
	if err != nil {
		return nil, err
	}
	var names []string
	var errs config.Errors
	var named []string // addresses and interfaces that have an error already
	bad := func(link int, what, format string, args ...any) {
		if !slices.Contains(named, what) {
			named = append(named, what)
			errs.Add(badField(r.TopologyPath())(r.fields[link], format, args...))
		}
	}
	for i, link := range r.Datapath.Links {
		addr := link.Local.Addr()
		if addr.IsLoopback() {
			continue
		}
		carrier, ok := carriers[addr.WithZone("")]
		if !ok {
			bad(i, addr.String(), "no network interface has the address %s: add it to one or correct the file", addr)
			continue
		}
		if !carrier.up {
			bad(i, carrier.name, "the interface %s, which has the address %s, is down: ip link set %[1]s up", carrier.name, addr)
		}
		if !carrier.loopback && !slices.Contains(names, carrier.name) {
			names = append(names, carrier.name)
		}
	}
	if err := errs.Err(); err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

// CheckInterfaces refuses interfaces that have none of the router's own underlay addresses, unless they are for other stages too: no
// datagram for the router arrives there. What does not exist is refused when the data plane is attached.
func (r *Router) CheckInterfaces(names []string, others bool) error {
	carriers, err := addressCarriers()
	if err != nil {
		return err
	}
	carrying := map[string]bool{}
	for _, link := range r.Datapath.Links {
		if c, ok := carriers[link.Local.Addr().WithZone("")]; ok {
			carrying[c.name] = true
		}
	}
	var errs config.Errors
	for _, name := range names {
		if _, err := net.InterfaceByName(name); err == nil && !carrying[name] && !others {
			errs.Add(fmt.Errorf("interface %s has no address of router %s in %s: name one that has, or add the address",
				name, r.ID(), r.TopologyPath()))
		}
	}
	return errs.Err()
}

// carrier is a network interface that has an address.
type carrier struct {
	name     string
	loopback bool
	up       bool
}

// addressCarriers maps the addresses of the current network namespace to their interfaces.
func addressCarriers() (map[netip.Addr]carrier, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket to list addresses: %w", err)
	}
	defer handle.Close()
	links, err := handle.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	byIndex := map[int]carrier{}
	for _, l := range links {
		attrs := l.Attrs()
		byIndex[attrs.Index] = carrier{name: attrs.Name, loopback: attrs.EncapType == "loopback",
			up: attrs.Flags&net.FlagUp != 0}
	}
	addrs, err := handle.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	carriers := map[netip.Addr]carrier{}
	for _, a := range addrs {
		addr, ok := netip.AddrFromSlice(a.IP)
		c, known := byIndex[a.LinkIndex]
		if ok && known {
			carriers[addr.Unmap()] = c
		}
	}
	return carriers, nil
}
