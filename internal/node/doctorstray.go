// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"slices"
	"time"

	"culvert/internal/doctor"
	"culvert/internal/stats"
)

// strays returns the interfaces of a SCION router that are dropping datagrams of links because they came in by the wrong
// interface. It reads the counters twice and calls wait in between. If nothing was dropped before the first reading, it
// returns nil without a call of wait.
func strays(router string, plane stats.PortSource, wait func()) (found []doctor.Stray) {
	before, err := stats.Dropped(plane, stats.ReasonSCIONInterface)
	if err != nil {
		return nil // another check of doctor covers missing privileges
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(before)), func(n uint64) bool { return n > 0 }) {
		return nil
	}
	wait()
	after, err := stats.Dropped(plane, stats.ReasonSCIONInterface)
	if err != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if n, known := before[name]; known && after[name] > n {
			found = append(found, doctor.Stray{Interface: name, Router: router, Packets: after[name] - n})
		}
	}
	return found
}

func waitSecond() { time.Sleep(time.Second) }
