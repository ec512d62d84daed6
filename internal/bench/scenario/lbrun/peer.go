// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
)

// kernelPeer is a load balancer of the kernel's, between a router that clients are behind and backends that are neighbors.
type kernelPeer struct {
	// program puts the rules in force: nft, iptables or ipvsadm; empty for none.
	program string
	// args are the program's, and rules what it is given to read.
	args  []string
	rules func(p peer.Path) string
	// sets are files below /proc/sys/net of the namespace with what is to be in them.
	sets map[string]string
	// takes is set if the service's address is one of the host's own, as IPVS needs it.
	takes bool
	// opens is set for peers that take packets of a flow only after its SYN. All others take up flows at any packet: to
	// them a SYN whose answer they have not seen, as with one way only, is no reason to take what follows for valid.
	opens bool
	// arrival is what the peer makes of packets.
	arrival arrivalForm

	netns *load.Netns
	on    io.Closer
}

// Attach makes the namespace a balancer, and sends some packets to see that it is one.
func (d *kernelPeer) Attach(ctx context.Context, p peer.Path) error {
	if err := d.install(ctx, p); err != nil {
		return err
	}
	var err error
	if d.on, err = load.Listen(p.In); err != nil {
		return err
	}
	return verify(ctx, p, d.arrival, d.opens)
}

// install makes the namespace a balancer.
func (d *kernelPeer) install(ctx context.Context, p peer.Path) error {
	d.netns = p.In.Netns
	if err := makeHost(p, d.sets, d.takes); err != nil {
		return err
	}
	if d.program != "" {
		if _, err := d.netns.Command(ctx, d.rules(p), d.program, d.args...); err != nil {
			return err
		}
	}
	return nil
}

// makeHost makes a namespace a router between clients and backends, as a balancer is. All backends are neighbors with an
// Ethernet address of their own. The service is routed to the first of them, unless the host takes its packets itself.
func makeHost(p peer.Path, sets map[string]string, takes bool) error {
	gateway := netIn.Addr().Next().Next()
	steps := []func() error{
		func() error { return p.In.Assign(netip.PrefixFrom(netIn.Addr().Next(), netIn.Bits())) },
		func() error { return p.Out.Assign(netip.PrefixFrom(netOut.Addr().Next(), netOut.Bits())) },
		func() error { return p.In.SetNeighbor(gateway, p.Source.MAC) },
		func() error { return p.In.Netns.Do(func() error { return setUp(p, sets) }) },
		func() error { return addRoute(p.In, netip.PrefixFrom(netip.IPv4Unspecified(), 0), gateway) },
	}
	for i := range backendCount {
		steps = append(steps, func() error { return p.Out.SetNeighbor(backendAddr(i), backendMAC(i)) })
	}
	service := netip.PrefixFrom(vip4.Addr(), vip4.Addr().BitLen())
	if takes {
		steps = append(steps, func() error { return p.In.Assign(service) })
	} else {
		steps = append(steps, func() error { return addRoute(p.Out, service, backendAddr(0)) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// setUp makes the namespace of the calling thread a router that takes packets whatever their source.
func setUp(p peer.Path, sets map[string]string) error {
	all := map[string]string{"ipv4/ip_forward": "1"}
	for _, dev := range []string{"all", p.In.Name, p.Out.Name} {
		all["ipv4/conf/"+dev+"/rp_filter"] = "0"
	}
	maps.Copy(all, sets)
	for name, value := range all {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			return fmt.Errorf("make a namespace a balancer: set %s to %s: %w", name, value, err)
		}
	}
	return nil
}

// addRoute routes a network to a neighbor.
func addRoute(by load.End, to netip.Prefix, gateway netip.Addr) error {
	dst := &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())}
	route := &netlink.Route{LinkIndex: by.Index, Dst: dst, Gw: gateway.AsSlice()}
	if err := by.Netns.Netlink().RouteAdd(route); err != nil {
		return fmt.Errorf("route %s to %s: %w", to, gateway, err)
	}
	return nil
}

// Available tells whether the program is there and the kernel takes its rules, by trying.
func (d *kernelPeer) Available() (err error) {
	if d.program == "" {
		return nil
	}
	if _, err := exec.LookPath(d.program); err != nil {
		return fmt.Errorf("find %s: %w: 'make deps' installs it", d.program, err)
	}
	row := &scenario.VethRow{Device: d}
	defer func() { err = errors.Join(err, row.Teardown()) }()
	if _, err := row.BuildPath(); err != nil {
		return err
	}
	return d.install(context.Background(), row.Path)
}

// Frames go to the balancer's own Ethernet address.
func (*kernelPeer) Frames(p peer.Path, common [][]byte) ([][]byte, error) {
	return load.Addressed(common, p.In.MAC, p.Source.MAC), nil
}

// Losses are what the kernel dropped, and what connection tracking did.
func (d *kernelPeer) Losses() (map[string]uint64, error) {
	lost, err := peer.KernelLosses(d.netns)
	if err != nil {
		return nil, err
	}
	err = d.netns.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/stat/nf_conntrack")
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the counters of connection tracking: %w", err)
		}
		lost["conntrack_drop"], err = conntrackDrops(string(text))
		return err
	})
	return lost, err
}

// conntrackDrops reads what connection tracking dropped: for want of room, and when two packets made the same entry. The
// text has a line of names and one of hexadecimal numbers for each CPU.
func conntrackDrops(text string) (sum uint64, err error) {
	head, lines, _ := strings.Cut(text, "\n")
	names := strings.Fields(head)
	for line := range strings.Lines(lines) {
		for i, field := range strings.Fields(line) {
			if i >= len(names) || names[i] != "drop" && names[i] != "insert_failed" {
				continue
			}
			n, err := strconv.ParseUint(field, 16, 64)
			if err != nil {
				return 0, fmt.Errorf("read the counters of connection tracking: %w", err)
			}
			sum += n
		}
	}
	return sum, nil
}

// Detach leaves the rules to the namespace.
func (d *kernelPeer) Detach() error {
	if d.on == nil {
		return nil
	}
	on := d.on
	d.on = nil
	return on.Close()
}
