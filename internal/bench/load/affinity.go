// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Pin binds the calling thread to CPUs for good. The thread must be locked to its goroutine. Without CPUs Pin does nothing.
func Pin(cpus ...int) error {
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind a thread to CPUs %v: %w", cpus, err)
	}
	return nil
}

// LastCPU is the highest-numbered CPU that the process may use: the default for measurements, because
// interrupts and housekeeping prefer the lowest.
func LastCPU() int {
	return max(PickCPU(func(int) bool { return true }), 0)
}

// AnotherCPU is the highest-numbered CPU other than the one given. If there is no other, it is the one given.
func AnotherCPU(not int) int {
	if cpu := PickCPU(func(cpu int) bool { return cpu != not }); cpu >= 0 {
		return cpu
	}
	return not
}

// AllowedCPUs is how many CPUs the process may use.
func AllowedCPUs() int {
	n := 0
	PickCPU(func(int) bool { n++; return false })
	return max(n, 1)
}

// PickCPU returns the highest-numbered CPU that the process may use and for which suits is true, or -1 if there is none. It
// calls suits for each CPU that the process may use, in ascending order.
func PickCPU(suits func(cpu int) bool) int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return -1
	}
	last := -1
	for cpu, left := 0, set.Count(); left > 0; cpu++ {
		if !set.IsSet(cpu) {
			continue
		}
		left--
		if suits(cpu) {
			last = cpu
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
