// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/host/netdev"
)

// xdpProgram is a filter that is one of the bench's own programs.
type xdpProgram struct {
	// program is the name of the program in the eBPF object.
	program string

	in   load.End
	prog *ebpf.Program
	on   io.Closer
}

func (d *xdpProgram) Install(_ context.Context, in load.End, rules ruleSet) error {
	if d.program == load.BenchProgBenchDropIcmp && (rules.Idle > 0 || len(rules.Set) > 0) {
		return errUnsupported
	}
	spec, err := load.LoadBench()
	if err != nil {
		return err
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{d.program: spec.Programs[d.program]}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return fmt.Errorf("load %s: %w", d.program, err)
	}
	defer coll.Close()
	d.in, d.prog = in, coll.DetachProgram(d.program)
	d.on, err = in.AttachXDP(d.prog)
	return err
}

// Dropped implements packetFilter by the counters of the device's driver.
func (d *xdpProgram) Dropped(context.Context) (uint64, error) { return xdpDrops(d.in) }

func (d *xdpProgram) Remove() error {
	var err error
	if d.on != nil {
		err = d.on.Close()
	}
	if d.prog != nil {
		_ = d.prog.Close()
	}
	return err
}

// xdpDrops is the driver's counter of packets that XDP programs have dropped at the device.
func xdpDrops(e load.End) (sum uint64, err error) {
	err = e.Netns.Do(func() error {
		own, err := netdev.EthtoolStats(e.Name)
		for name, n := range own {
			if strings.HasPrefix(name, "rx_queue_") && strings.HasSuffix(name, "_xdp_drops") {
				sum += n
			}
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read the driver's counters of %s: %w", e.Name, err)
	}
	return sum, nil
}

// xdpFilterProgram is the name of xdpFilter's program.
const xdpFilterProgram = "xdp-filter"

// xdpFilter is the filter of xdp-tools. It matches addresses and ports but no protocols, so it drops by the flood's source.
type xdpFilter struct {
	pins peer.PrivateBPFFS
	in   load.End
}

func (d *xdpFilter) Install(_ context.Context, in load.End, rules ruleSet) error {
	if rules.Idle > 0 || len(rules.Set) > 0 {
		return errUnsupported
	}
	d.in = in
	if err := d.pins.Open(in.Netns); err != nil {
		return err
	}
	if _, err := d.pins.Run(xdpFilterProgram, "load", in.Name, "-m", "native", "-f", "ipv4"); err != nil {
		return err
	}
	_, err := d.pins.Run(xdpFilterProgram, "ip", "-m", "src", floodSource.String())
	return err
}

// Dropped implements packetFilter by the program's counter for the flood's source.
func (d *xdpFilter) Dropped(context.Context) (uint64, error) {
	out, err := d.pins.Run(xdpFilterProgram, "status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == floodSource.String() {
			return strconv.ParseUint(fields[2], 10, 64)
		}
	}
	return 0, fmt.Errorf("read the counter of %s: its status does not have %s", xdpFilterProgram, floodSource)
}

func (d *xdpFilter) Remove() error {
	if !d.pins.IsOpen() {
		return nil
	}
	_, err := d.pins.Run(xdpFilterProgram, "unload", d.in.Name)
	d.pins.Close()
	return err
}
