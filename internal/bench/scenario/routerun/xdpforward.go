// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"context"
	"fmt"
	"os/exec"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
)

// xdpForwardProgram is the program of xdp-tools that forwards by the kernel's FIB.
const xdpForwardProgram = "xdp-forward"

// xdpForward is the forwarder of xdp-tools. It pins what it loads in /sys/fs/bpf, so it runs with a private one.
type xdpForward struct {
	// program is the path of the program. Empty stands for the one in PATH.
	program string
	netns   *load.Netns
	names   []string
	pins    peer.PrivateBPFFS
	on      bool
}

// Available implements peer.Optional: it checks that the program exists.
func (d *xdpForward) Available() error {
	_, err := d.find()
	return err
}

func (d *xdpForward) find() (string, error) {
	name := d.program
	if name == "" {
		name = xdpForwardProgram
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("find %s: %w: it is in the package xdp-tools of Debian 13 and later, or leave the row out", name, err)
	}
	return path, nil
}

// Prepare mounts the private /sys/fs/bpf.
func (d *xdpForward) Prepare(_ context.Context, p peer.Path) error {
	if _, err := d.find(); err != nil {
		return err
	}
	d.netns, d.names = p.In.Netns, []string{p.In.Name, p.Out.Name}
	return d.pins.Open(d.netns)
}

// run runs the program with the private /sys/fs/bpf.
func (d *xdpForward) run(args ...string) error {
	program, err := d.find()
	if err != nil {
		return err
	}
	_, err = d.pins.Run(append([]string{program}, args...)...)
	return err
}

func (d *xdpForward) Attach(context.Context, peer.Path) error {
	d.on = true
	return d.run(append([]string{"load", "-m", "native"}, d.names...)...)
}

// Frames returns the group's frames, which have the router's Ethernet address.
func (*xdpForward) Frames(_ peer.Path, common [][]byte) ([][]byte, error) { return common, nil }

// Losses counts the packets that the kernel dropped.
func (d *xdpForward) Losses() (map[string]uint64, error) { return peer.KernelLosses(d.netns) }

func (d *xdpForward) Detach() error {
	if !d.on {
		return nil
	}
	d.on = false
	return d.run(append([]string{"unload"}, d.names...)...)
}

// Release unmounts the private /sys/fs/bpf, with all pins in it.
func (d *xdpForward) Release() error {
	err := d.Detach()
	d.pins.Close()
	return err
}
