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

// xdpRedirect is the verdict XDP_REDIRECT.
const xdpRedirect = 4

// attachment is a loaded program on a device; closing it removes both.
type attachment struct {
	prog *ebpf.Program
	link io.Closer
}

// Close of nothing does nothing.
func (a *attachment) Close() error {
	if a == nil {
		return nil
	}
	return errors.Join(a.link.Close(), a.prog.Close())
}

// attachBench loads one program of the bench and attaches it.
func attachBench(e End, program string, variables map[string]any) (*attachment, error) {
	spec, err := loadBench()
	if err != nil {
		return nil, err
	}
	for name, value := range variables {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("prepare %s: %w", program, err)
		}
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{program: spec.Programs[program]}
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", program, err)
	}
	defer loaded.Close()
	a := &attachment{prog: loaded.DetachProgram(program)}
	if a.link, err = e.AttachXDP(a.prog); err != nil {
		return nil, errors.Join(err, a.prog.Close())
	}
	return a, nil
}

// Listen makes a veth take packets that are redirected into it and hand them to the stack. Without NAPI, which an
// XDP program turns on, it would lose them without counting.
func Listen(e End) (io.Closer, error) {
	a, err := attachBench(e, benchProgBenchEmpty, nil)
	if err != nil {
		return nil, err
	}
	return a, nil
}

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
