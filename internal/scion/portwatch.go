// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"maps"
	"slices"
	"time"

	"github.com/scionproto/scion/pkg/log"

	"culvert/internal/stats"
)

// strayDrops is the message in the log about datagrams of links that came by another interface.
const strayDrops = "Datagrams of links dropped: they came by another interface than the route to the far end leads to"

// portWatch logs datagrams that the fast path drops because they came by another interface than their link's, at most one
// line a minute for each interface.
type portWatch struct {
	fast stats.PortSource
	// info writes to the log.
	info func(message string, fields ...any)
	// logged holds the counts that the log has reported, and quiet is when the next report may come, both by interface.
	logged map[string]uint64
	quiet  map[string]time.Time
}

// newPortWatch returns nil if there is no fast path.
func newPortWatch(fast FastPathCounters) *portWatch {
	source, ok := fast.(stats.PortSource)
	if !ok {
		return nil
	}
	w := &portWatch{fast: source, info: log.Info, quiet: map[string]time.Time{}}
	w.logged, _ = stats.Dropped(source, stats.ReasonSCIONInterface) // what an adopted fast path dropped before is not reported
	return w
}

// look logs what was dropped since the last report.
func (w *portWatch) look(now time.Time) {
	seen, err := stats.Dropped(w.fast, stats.ReasonSCIONInterface)
	if err != nil {
		return // the next call tries again
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if seen[name] <= w.logged[name] || now.Before(w.quiet[name]) {
			continue
		}
		w.info(strayDrops, "interface", name, "packets", seen[name]-w.logged[name])
		w.logged[name], w.quiet[name] = seen[name], now.Add(dropsQuiet)
	}
}
