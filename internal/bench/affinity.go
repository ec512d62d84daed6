// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// pin binds the calling thread, which must be locked to its goroutine, to a CPU and returns how to undo it.
func pin(cpu int) (undo func(), err error) {
	var old, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return nil, fmt.Errorf("read the CPUs of the thread: %w", err)
	}
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("bind a thread to CPU %d (this process may use %d CPUs): %w", cpu, old.Count(), err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &old) }, nil
}

// LastCPU is the highest-numbered CPU that the process may use: the default for measurements, because
// interrupts and housekeeping prefer the lowest.
func LastCPU() int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0
	}
	last := 0
	for cpu, left := 0, set.Count(); left > 0; cpu++ {
		if set.IsSet(cpu) {
			last = cpu
			left--
		}
	}
	return last
}

// threadTime is the CPU time that the calling thread has used. Unlike the wall clock it does not advance while
// the thread waits for a CPU that something else is using.
func threadTime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0, fmt.Errorf("read the CPU time of the thread: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
