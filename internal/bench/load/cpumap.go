// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// CPUMapThread is the kernel thread that takes packets from the queue of a CPU in a CPUMAP. The kernel names it by both.
func CPUMapThread(m *ebpf.Map, cpu int) (pid int, err error) {
	info, err := m.Info()
	if err != nil {
		return 0, fmt.Errorf("ask for the number of %s: %w", m, err)
	}
	id, ok := info.ID()
	if !ok {
		return 0, fmt.Errorf("the kernel gives %s no number", m)
	}
	return kernelThread(fmt.Sprintf("cpumap/%d/map:%d", cpu, id))
}

// SoftirqThread is the kernel thread that receives packets on a CPU when there are many.
func SoftirqThread(cpu int) (pid int, err error) {
	return kernelThread(fmt.Sprintf("ksoftirqd/%d", cpu))
}

// kernelThread is the only kernel thread of that name.
func kernelThread(name string) (pid int, err error) {
	pids, err := processesNamed(func(comm string) bool { return comm == name+"\n" })
	if err == nil && len(pids) != 1 {
		err = fmt.Errorf("%d kernel threads are named %s, want one", len(pids), name)
	}
	if err != nil {
		return 0, err
	}
	return pids[0], nil
}

// ProcessTime is the CPU time that a process, or a kernel thread, has used.
func ProcessTime(pid int) (time.Duration, error) {
	// The number of such a clock is what clock_getcpuclockid(3) makes of a process: the number's complement, and 2 for the
	// scheduler's own count, which is as exact as the clock.
	const scheduler = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &ts); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// Hurry has a kernel thread run as soon as there is something to do for it, before all ordinary threads of its CPU.
func Hurry(pid int) error { return setRealtime(pid) }
