// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
)

type counter struct{ Packets, Bytes uint64 }

// counters reads the programs' counters. Reading all of them for each frame would take most of the time, so it reads those of
// the frame's device each time, and all of them now and then.
type counters struct {
	counts *ebpf.Map
	ports  int         // number of ports with counters
	last   [][]counter // the last values by port and reason
	runs   uint64
}

// perPort is REASON_SLOTS of bpf/core/reason.h.
func perPort() int { return 2 * len(datapath.Reasons()) }

// allCounted is the number of frames between two readings of all counters.
const allCounted = 64

// counted sets the fields of o to what was counted for the last frame, which came in by a port.
func (c *counters) counted(port int, o *outcome) error {
	if c.last == nil {
		c.last = make([][]counter, c.ports)
		for n := range c.last {
			c.last[n] = make([]counter, perPort())
		}
	}
	now, err := c.read(port)
	if err != nil {
		return err
	}
	for n, v := range now {
		before := c.last[port][n]
		if v == before {
			continue
		}
		if o.counted.Packets != 0 {
			o.others++
		}
		o.counted = counter{v.Packets - before.Packets, v.Bytes - before.Bytes}
		o.limited = n >= perPort()/2
		r := datapath.Reasons()[n%(perPort()/2)]
		o.reason = string(r.Verdict) + " " + r.Name
	}
	c.last[port] = now
	if c.runs++; c.runs%allCounted != 0 {
		return nil
	}
	var packets uint64
	for port := range c.ports {
		all, err := c.read(port)
		if err != nil {
			return err
		}
		for _, v := range all {
			packets += v.Packets
		}
	}
	if packets != c.runs {
		return fmt.Errorf("%d packets were counted at all interfaces, %d came in: one of the last %d was counted elsewhere", packets, c.runs, allCounted)
	}
	return nil
}

// read returns the counters of a port, summed over all CPUs.
func (c *counters) read(port int) ([]counter, error) {
	cpus := ebpf.MustPossibleCPU()
	keys, values := make([]uint32, perPort()), make([]counter, perPort()*cpus)
	// The library begins at the first entry always. Arrays go on behind the entry that in leads to.
	before, next := uint32(port*perPort()-1), uint32(0)
	attr := struct {
		in, out, keys, values uint64
		count, fd             uint32
		elemFlags, flags      uint64
	}{
		out: uint64(uintptr(unsafe.Pointer(&next))), keys: uint64(uintptr(unsafe.Pointer(&keys[0]))),
		values: uint64(uintptr(unsafe.Pointer(&values[0]))), count: uint32(perPort()), fd: uint32(c.counts.FD()),
	}
	if port > 0 {
		attr.in = uint64(uintptr(unsafe.Pointer(&before)))
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	for _, p := range []any{&before, &next, &keys[0], &values[0]} {
		pin.Pin(p)
	}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_LOOKUP_BATCH, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 && errno != unix.ENOENT || int(attr.count) != perPort() {
		return nil, fmt.Errorf("read the counters of port %d: %w", port, errno)
	}
	sums := make([]counter, perPort())
	for i := range sums {
		for _, v := range values[i*cpus : (i+1)*cpus] {
			sums[i].Packets += v.Packets
			sums[i].Bytes += v.Bytes
		}
	}
	return sums, nil
}
