// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
)

// Forward is the kernel's IP forwarding, with a route for each direction and static neighbor entries.
type Forward struct {
	on io.Closer
}

// Attach implements Device.
func (d *Forward) Attach(_ context.Context, p Path) (err error) {
	if err := p.In.Netns.Do(func() error { return setForwarding("1") }); err != nil {
		return err
	}
	// The networks of load.UDPFrames, each with an address of it for the neighbor that it is routed to.
	for _, side := range []struct {
		near, far load.End
		network   net.IPNet
		via       net.IP
	}{
		{p.In, p.Source, net.IPNet{IP: net.IPv4(198, 18, 0, 0), Mask: net.CIDRMask(16, 32)}, net.IPv4(198, 18, 255, 254)},
		{p.Out, p.Sink, net.IPNet{IP: net.IPv4(198, 19, 0, 0), Mask: net.CIDRMask(16, 32)}, net.IPv4(198, 19, 255, 254)},
	} {
		nl := side.near.Netns.Netlink()
		entry := &netlink.Neigh{
			LinkIndex:    side.near.Index,
			Family:       unix.AF_INET,
			State:        netlink.NUD_PERMANENT,
			IP:           side.via,
			HardwareAddr: side.far.MAC,
		}
		if err := nl.NeighSet(entry); err != nil {
			return fmt.Errorf("make %s a neighbor of %s: %w", side.far.Name, side.near.Name, err)
		}
		route := &netlink.Route{
			LinkIndex: side.near.Index,
			Dst:       &side.network,
			Gw:        side.via,
			Flags:     int(netlink.FLAG_ONLINK),
		}
		if err := nl.RouteAdd(route); err != nil {
			return fmt.Errorf("route %s to %s: %w", side.network.String(), side.far.Name, err)
		}
	}
	d.on, err = load.Listen(p.In)
	return err
}

// setForwarding turns IPv4 forwarding on ("1") or off ("0") in the namespace of the calling thread.
func setForwarding(value string) error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte(value), 0); err != nil {
		return fmt.Errorf("set IPv4 forwarding to %s: %w", value, err)
	}
	return nil
}

// Frames implements Device.
func (*Forward) Frames(p Path, common [][]byte) ([][]byte, error) {
	return load.Addressed(common, p.In.MAC, p.Source.MAC), nil
}

// Losses implements Device.
func (*Forward) Losses() (map[string]uint64, error) { return nil, nil }

// Detach implements Device.
func (d *Forward) Detach() error {
	if d.on == nil {
		return nil
	}
	return d.on.Close()
}
