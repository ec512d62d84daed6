// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
)

// Redirect is the smallest device that forwards: an XDP program that only calls bpf_redirect.
type Redirect struct {
	on *load.Attachment
}

// Attach implements Device.
func (d *Redirect) Attach(_ context.Context, p Path) (err error) {
	d.on, err = load.AttachBench(p.In, load.BenchProgBenchRedirect, map[string]any{load.BenchVarOutIfindex: uint32(p.Out.Index)})
	return err
}

// Frames implements Device.
func (*Redirect) Frames(p Path, common [][]byte) ([][]byte, error) {
	return load.Addressed(common, p.Sink.MAC, p.Source.MAC), nil
}

// Losses implements Device.
func (*Redirect) Losses() (map[string]uint64, error) { return nil, nil }

// Program implements SingleProgram.
func (d *Redirect) Program() (*ebpf.Program, uint32) { return d.on.Prog, load.XDPRedirect }

// Detach implements Device.
func (d *Redirect) Detach() error { return d.on.Close() }

// Bridge is the kernel's bridge, with static entries for source and sink.
type Bridge struct {
	on io.Closer
}

// Attach implements Device.
func (d *Bridge) Attach(_ context.Context, p Path) (err error) {
	nl := p.In.Netns.Netlink()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "cvbridge"
	off := false
	br := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &off}
	if err := nl.LinkAdd(br); err != nil {
		return fmt.Errorf("make a bridge: %w", err)
	}
	for _, port := range []load.End{p.In, p.Out} {
		dev, err := nl.LinkByIndex(port.Index)
		if err != nil {
			return fmt.Errorf("find %s: %w", port.Name, err)
		}
		if err := nl.LinkSetMaster(dev, br); err != nil {
			return fmt.Errorf("put %s on the bridge: %w", port.Name, err)
		}
	}
	for port, mac := range map[int][]byte{p.In.Index: p.Source.MAC, p.Out.Index: p.Sink.MAC} {
		entry := &netlink.Neigh{
			LinkIndex:    port,
			Family:       unix.AF_BRIDGE,
			State:        netlink.NUD_NOARP,
			Flags:        netlink.NTF_MASTER,
			HardwareAddr: mac,
		}
		if err := nl.NeighSet(entry); err != nil {
			return fmt.Errorf("add an address to the bridge: %w", err)
		}
	}
	if err := nl.LinkSetUp(br); err != nil {
		return fmt.Errorf("set the bridge up: %w", err)
	}
	d.on, err = load.Listen(p.In)
	return err
}

// Frames implements Device.
func (*Bridge) Frames(p Path, common [][]byte) ([][]byte, error) {
	return load.Addressed(common, p.Sink.MAC, p.Source.MAC), nil
}

// Losses implements Device.
func (*Bridge) Losses() (map[string]uint64, error) { return nil, nil }

// Detach implements Device.
func (d *Bridge) Detach() error {
	if d.on == nil {
		return nil
	}
	return d.on.Close()
}

// Available implements Optional: it makes a bridge to see whether the kernel has them.
func (*Bridge) Available() (err error) {
	s, err := load.NewNetns()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "cvbridge"
	if err := s.Netlink().LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return fmt.Errorf("make a bridge: %w: load the module with 'modprobe bridge', or use a kernel with "+
			"CONFIG_BRIDGE, such as Debian's linux-image-cloud-amd64", err)
	}
	return nil
}
