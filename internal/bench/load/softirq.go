// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// SoftUse says how busy a CPU was with soft interrupts during a call of During.
type SoftUse struct {
	// Time is the time spent in NET_RX, the soft interrupt that receives packets. It is exact to the nanosecond. Elapsed is
	// the duration of the call.
	Time, Elapsed time.Duration
	// Share is the share of time spent in all soft interrupts, from 0 to 1, as the kernel samples it at its ticks.
	Share float64
	// Runs is how often NET_RX ran, from /proc/softirqs.
	Runs uint64
}

// Softirqs adds up the time that CPUs spend receiving packets. It slows every soft interrupt down a little.
type Softirqs struct {
	times *ebpf.Map
	links []link.Link
}

// WatchSoftirqs adds up the time from now on.
func WatchSoftirqs() (*Softirqs, error) {
	spec, err := loadSoftirq()
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load the programs that time soft interrupts: %w", err)
	}
	defer coll.Close()
	w := &Softirqs{times: coll.DetachMap(softirqMapSoftirqTimes)}
	for name, prog := range map[string]string{
		"softirq_entry": softirqProgBenchSoftirqEntry, "softirq_exit": softirqProgBenchSoftirqExit,
	} {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: coll.Programs[prog]})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("watch the tracepoint %s: %w", name, err), w.Close())
		}
		w.links = append(w.links, l)
	}
	return w, nil
}

// During runs fn and returns how busy a CPU was with soft interrupts meanwhile.
func (w *Softirqs) During(cpu int, fn func() error) (SoftUse, error) {
	before, err := w.read(cpu)
	if err != nil {
		return SoftUse{}, err
	}
	start := time.Now()
	if err := fn(); err != nil {
		return SoftUse{}, err
	}
	elapsed := time.Since(start)
	after, err := w.read(cpu)
	if err != nil {
		return SoftUse{}, err
	}
	use := SoftUse{Time: after.time - before.time, Elapsed: elapsed, Runs: after.runs - before.runs}
	if all := after.ticks.all - before.ticks.all; all > 0 {
		use.Share = float64(after.ticks.soft-before.ticks.soft) / float64(all)
	}
	return use, nil
}

// softState has the counters that SoftUse is computed from, at one moment.
type softState struct {
	time  time.Duration
	ticks cpuTime
	runs  uint64
}

func (w *Softirqs) read(cpu int) (s softState, err error) {
	var perCPU []softirqSoftirqTime
	if err := w.times.Lookup(uint32(0), &perCPU); err != nil {
		return s, fmt.Errorf("read the time of soft interrupts: %w", err)
	}
	ticks, err := readCPUs()
	if err != nil {
		return s, err
	}
	text, err := os.ReadFile("/proc/softirqs")
	if err != nil {
		return s, fmt.Errorf("count soft interrupts: %w", err)
	}
	s.time, s.ticks = time.Duration(perCPU[cpu].Ns), ticks[cpu]
	s.runs, err = netRX(string(text), cpu)
	return s, err
}

// netRX returns the count of NET_RX of a CPU in the text of /proc/softirqs, see proc(5). It has a header with the names of
// CPUs, and lines such as "NET_RX: 1 2".
func netRX(text string, cpu int) (uint64, error) {
	column := -1
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if column < 0 {
			for i, name := range fields {
				if name == "CPU"+strconv.Itoa(cpu) {
					column = i + 1
				}
			}
			if column < 0 {
				break
			}
			continue
		}
		if len(fields) > column && fields[0] == "NET_RX:" {
			return strconv.ParseUint(fields[column], 10, 64)
		}
	}
	return 0, fmt.Errorf("count soft interrupts: /proc/softirqs has no NET_RX of CPU %d", cpu)
}

// Close stops adding up. Closing nil does nothing.
func (w *Softirqs) Close() error {
	if w == nil {
		return nil
	}
	var err error
	for _, l := range w.links {
		err = errors.Join(err, l.Close())
	}
	return errors.Join(err, w.times.Close())
}
