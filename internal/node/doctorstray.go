// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"slices"
	"time"

	"culvert/internal/doctor"
	"culvert/internal/stats"
)

// strays finds the interfaces of a router where datagrams of links are being dropped that belong to another one. Wait is called
// between two looks if there have been any at all.
func strays(router string, plane stats.PortSource, wait func()) (found []doctor.Stray) {
	first, err := stats.Dropped(plane, stats.ReasonSCIONInterface)
	if err != nil {
		return nil // the privileges that it takes are a check of their own
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(first)), func(n uint64) bool { return n > 0 }) {
		return nil
	}
	wait()
	now, err := stats.Dropped(plane, stats.ReasonSCIONInterface)
	if err != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if then, known := first[name]; known && now[name] > then {
			found = append(found, doctor.Stray{Interface: name, Router: router, Packets: now[name] - then})
		}
	}
	return found
}

func aSecond() { time.Sleep(time.Second) }
