// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// cpuTime holds the times of a CPU since the machine started, in ticks of the kernel: not idle, in soft interrupts, and
// in all.
type cpuTime struct{ busy, soft, all uint64 }

// WatchCPUs runs fn and returns how busy each CPU was meanwhile, from 0 to 1. This includes all other work of the machine.
// The kernel counts in ticks of 10 ms, so a short run shows little.
func WatchCPUs(fn func() error) (map[int]float64, error) {
	before, err := readCPUs()
	if err != nil {
		return nil, err
	}
	if err := fn(); err != nil {
		return nil, err
	}
	after, err := readCPUs()
	if err != nil {
		return nil, err
	}
	use := map[int]float64{}
	for cpu, now := range after {
		if then, ok := before[cpu]; ok && now.all > then.all {
			use[cpu] = float64(now.busy-then.busy) / float64(now.all-then.all)
		}
	}
	return use, nil
}

// readCPUs reads the times of all CPUs that are online.
func readCPUs() (map[int]cpuTime, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, fmt.Errorf("read how busy the CPUs are: %w", err)
	}
	return parseCPUs(string(b))
}

// parseCPUs reads the lines "cpuN user nice system idle iowait irq softirq steal guest guest_nice" of /proc/stat, see
// proc(5). It leaves the guest times out, because they are part of the first two.
func parseCPUs(stat string) (map[int]cpuTime, error) {
	const idle, iowait, softirq, steal, counted = 3, 4, 6, 7, 8
	times := map[int]cpuTime{}
	for line := range strings.Lines(stat) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "cpu") || fields[0] == "cpu" {
			continue
		}
		cpu, err := strconv.Atoi(fields[0][len("cpu"):])
		if err != nil || len(fields) < counted+1 {
			return nil, fmt.Errorf("read how busy the CPUs are: /proc/stat has the line %q", strings.TrimSpace(line))
		}
		var t cpuTime
		for i, field := range fields[1 : counted+1] {
			n, err := strconv.ParseUint(field, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("read how busy the CPUs are: /proc/stat has the line %q", strings.TrimSpace(line))
			}
			// Stolen time belongs to another virtual machine: this CPU was neither idle nor busy.
			if i == steal {
				continue
			}
			t.all += n
			if i == softirq {
				t.soft += n
			}
			if i != idle && i != iowait {
				t.busy += n
			}
		}
		times[cpu] = t
	}
	return times, nil
}
