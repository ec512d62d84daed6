// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
)

// programDevice is a device that is one of the bench's own programs. With the empty program the kernel alone forwards. The
// program is loaded once, and is on In only while the device is attached.
type programDevice struct {
	// program is the name of the program in the eBPF object.
	program string
	prog    *ebpf.Program
	// passed is the program's counter of packets that it left to the kernel.
	passed *ebpf.Variable
	on     io.Closer
	netns  *load.Netns
}

// Prepare loads the program.
func (d *programDevice) Prepare(_ context.Context, p peer.Path) error {
	spec, err := load.LoadBench()
	if err != nil {
		return err
	}
	if err := spec.Variables[load.BenchVarOutIfindex].Set(uint32(p.Out.Index)); err != nil {
		return fmt.Errorf("prepare %s: %w", d.program, err)
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{d.program: spec.Programs[d.program]}
	loaded, err := ebpf.NewCollection(spec)
	if err != nil {
		return fmt.Errorf("load %s: %w", d.program, err)
	}
	defer loaded.Close()
	d.prog, d.passed, d.netns = loaded.DetachProgram(d.program), loaded.Variables[load.BenchVarFibPassed], p.In.Netns
	return nil
}

func (d *programDevice) Attach(_ context.Context, p peer.Path) (err error) {
	l, err := p.In.AttachXDP(d.prog)
	if err != nil {
		return err
	}
	d.on = l
	return nil
}

// Frames returns the group's frames, which have the router's Ethernet address.
func (*programDevice) Frames(_ peer.Path, common [][]byte) ([][]byte, error) { return common, nil }

// Losses counts the packets that the kernel dropped.
func (d *programDevice) Losses() (map[string]uint64, error) { return peer.KernelLosses(d.netns) }

// Diverted counts the packets that the program left to the kernel. The empty program, which leaves all, does not count them.
func (d *programDevice) Diverted() (map[string]uint64, error) {
	var packets uint64
	if err := d.passed.Get(&packets); err != nil {
		return nil, fmt.Errorf("read how many packets %s left to the kernel: %w", d.program, err)
	}
	return map[string]uint64{leftToKernel: packets}, nil
}

func (d *programDevice) Detach() error {
	if d.on == nil {
		return nil
	}
	on := d.on
	d.on = nil
	return on.Close()
}

// Release unloads the program.
func (d *programDevice) Release() error {
	err := d.Detach()
	if d.prog != nil {
		err = errors.Join(err, d.prog.Close())
	}
	return err
}
