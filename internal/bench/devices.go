// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// redirect is the least that can forward: an XDP program of one call.
type redirect struct {
	on *attachment
}

func (d *redirect) Attach(_ context.Context, p Path) (err error) {
	d.on, err = attachBench(p.In, benchProgBenchRedirect, map[string]any{benchVarOutIfindex: uint32(p.Out.Index)})
	return err
}

func (*redirect) Frames(p Path, common [][]byte) ([][]byte, error) {
	return Addressed(common, p.Sink.MAC, p.Source.MAC), nil
}

func (*redirect) Losses() (map[string]uint64, error) { return nil, nil }

func (d *redirect) Program() (*ebpf.Program, uint32) { return d.on.prog, xdpRedirect }

func (d *redirect) Detach() error { return d.on.Close() }

// bridge is the kernel's own bridge, with the sink's address known to it.
type bridge struct {
	on io.Closer
}

func (d *bridge) Attach(_ context.Context, p Path) (err error) {
	nl := p.In.Space.Netlink()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "cvbridge"
	off := false
	br := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &off}
	if err := nl.LinkAdd(br); err != nil {
		return fmt.Errorf("make a bridge: %w", err)
	}
	for _, port := range []End{p.In, p.Out} {
		dev, err := nl.LinkByIndex(port.Index)
		if err != nil {
			return fmt.Errorf("find %s: %w", port.Name, err)
		}
		if err := nl.LinkSetMaster(dev, br); err != nil {
			return fmt.Errorf("put %s on the bridge: %w", port.Name, err)
		}
	}
	for port, mac := range map[int][]byte{p.In.Index: p.Source.MAC, p.Out.Index: p.Sink.MAC} {
		known := &netlink.Neigh{
			LinkIndex:    port,
			Family:       unix.AF_BRIDGE,
			State:        netlink.NUD_NOARP,
			Flags:        netlink.NTF_MASTER,
			HardwareAddr: mac,
		}
		if err := nl.NeighSet(known); err != nil {
			return fmt.Errorf("tell the bridge an address: %w", err)
		}
	}
	if err := nl.LinkSetUp(br); err != nil {
		return fmt.Errorf("set the bridge up: %w", err)
	}
	d.on, err = Listen(p.In)
	return err
}

func (*bridge) Frames(p Path, common [][]byte) ([][]byte, error) {
	return Addressed(common, p.Sink.MAC, p.Source.MAC), nil
}

func (*bridge) Losses() (map[string]uint64, error) { return nil, nil }

func (d *bridge) Detach() error {
	if d.on == nil {
		return nil
	}
	return d.on.Close()
}

// Available tells whether the kernel has bridges, by making one.
func (*bridge) Available() (err error) {
	s, err := NewSpace()
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
