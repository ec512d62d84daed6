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

// kernelPeer is a load balancer of the kernel. Clients are behind a router in front of it, and backends are its neighbors.
type kernelPeer struct {
	// program installs the rules: nft, iptables-restore or ipvsadm. Empty stands for no rules.
	program string
	// args are the program's arguments. rules is its standard input.
	args  []string
	rules func(p peer.Path) string
	// sysctls are files below /proc/sys/net with the values to write into them.
	sysctls map[string]string
	// ownsVIP is set if the VIP has to be an address of the host itself, as IPVS needs it.
	ownsVIP bool
	// needsSYN is set for peers that accept packets of a flow only after its SYN. All others accept a flow at any packet. Those
	// do not get SYNs: packets go in one direction only, and after a SYN without an answer connection tracking considers the
	// packets that follow invalid.
	needsSYN bool
	// arrival is the form in which packets arrive at backends.
	arrival arrivalForm

	netns *load.Netns
	on    io.Closer
}

// Attach makes the namespace a balancer, and verifies that it balances.
func (d *kernelPeer) Attach(ctx context.Context, p peer.Path) error {
	if err := d.install(ctx, p); err != nil {
		return err
	}
	var err error
	if d.on, err = load.Listen(p.In); err != nil {
		return err
	}
	return verify(ctx, p, d.arrival, d.needsSYN)
}

// install makes the namespace a balancer.
func (d *kernelPeer) install(ctx context.Context, p peer.Path) error {
	d.netns = p.In.Netns
	if err := makeHost(p, d.sysctls, d.ownsVIP); err != nil {
		return err
	}
	if d.program != "" {
		if _, err := d.netns.Command(ctx, d.rules(p), d.program, d.args...); err != nil {
			return err
		}
	}
	return nil
}

// makeHost makes a namespace a router between clients and backends. All backends are neighbors with an Ethernet address of their
// own. The VIP is an address of the host if ownsVIP is set. Otherwise it is routed to the first backend.
func makeHost(p peer.Path, sysctls map[string]string, ownsVIP bool) error {
	gateway := netIn.Addr().Next().Next()
	steps := []func() error{
		func() error { return p.In.Assign(netip.PrefixFrom(netIn.Addr().Next(), netIn.Bits())) },
		func() error { return p.Out.Assign(netip.PrefixFrom(netOut.Addr().Next(), netOut.Bits())) },
		func() error { return p.In.SetNeighbor(gateway, p.Source.MAC) },
		func() error { return p.In.Netns.Do(func() error { return setRouting(p, sysctls) }) },
		func() error { return addRoute(p.In, netip.PrefixFrom(netip.IPv4Unspecified(), 0), gateway) },
	}
	for i := range backendCount {
		steps = append(steps, func() error { return p.Out.SetNeighbor(backendAddr(i), backendMAC(i)) })
	}
	vip := netip.PrefixFrom(vip4.Addr(), vip4.Addr().BitLen())
	if ownsVIP {
		steps = append(steps, func() error { return p.In.Assign(vip) })
	} else {
		steps = append(steps, func() error { return addRoute(p.Out, vip, backendAddr(0)) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// setRouting makes the namespace of the calling thread a router without source validation. It also writes sysctls.
func setRouting(p peer.Path, sysctls map[string]string) error {
	all := map[string]string{"ipv4/ip_forward": "1"}
	for _, dev := range []string{"all", p.In.Name, p.Out.Name} {
		all["ipv4/conf/"+dev+"/rp_filter"] = "0"
	}
	maps.Copy(all, sysctls)
	for name, value := range all {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			return fmt.Errorf("make a namespace a balancer: set %s to %s: %w", name, value, err)
		}
	}
	return nil
}

// addRoute adds a route to a network by a gateway, which is a neighbor on the given device.
func addRoute(e load.End, to netip.Prefix, gateway netip.Addr) error {
	dst := &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())}
	route := &netlink.Route{LinkIndex: e.Index, Dst: dst, Gw: gateway.AsSlice()}
	if err := e.Netns.Netlink().RouteAdd(route); err != nil {
		return fmt.Errorf("route %s to %s: %w", to, gateway, err)
	}
	return nil
}

// Available implements peer.Optional: it checks that the program exists, and installs the rules to see whether the kernel
// supports them.
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

// Frames returns the common frames, addressed to the balancer's Ethernet address.
func (*kernelPeer) Frames(p peer.Path, common [][]byte) ([][]byte, error) {
	return load.Addressed(common, p.In.MAC, p.Source.MAC), nil
}

// Losses counts the packets that the kernel's IP stack and its connection tracking dropped.
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

// conntrackDrops counts the packets that connection tracking dropped: because its table was full, and because two packets made
// the same entry. The text has a line of names, and a line of hexadecimal numbers for each CPU.
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

// Detach removes the XDP program from In. The rules disappear with the namespace.
func (d *kernelPeer) Detach() error {
	if d.on == nil {
		return nil
	}
	on := d.on
	d.on = nil
	return on.Close()
}
