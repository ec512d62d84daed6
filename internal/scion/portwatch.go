// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"maps"
	"slices"
	"time"

	"github.com/scionproto/scion/pkg/log"

	"culvert/internal/stats"
)

// strayDrops is what the log says of datagrams of links that came by another interface.
const strayDrops = "Datagrams of links dropped: they came by another interface than the route to the far end leads to"

// portWatch tells the log of datagrams that the fast path drops because they came by another interface than their link's, a
// line a minute for each interface.
type portWatch struct {
	fast stats.PortSource
	// info writes to the log.
	info func(message string, fields ...any)
	// told is what the log knows, and quiet is until when it is told no more, both by interface.
	told  map[string]uint64
	quiet map[string]time.Time
}

// newPortWatch returns nil where there is no fast path.
func newPortWatch(fast FastPathCounters) *portWatch {
	source, ok := fast.(stats.PortSource)
	if !ok {
		return nil
	}
	w := &portWatch{fast: source, info: log.Info, quiet: map[string]time.Time{}}
	w.told, _ = stats.Dropped(source, stats.ReasonSCIONInterface) // an adopted fast path's past is no news
	return w
}

// look writes to the log what was dropped since it was told last.
func (w *portWatch) look(now time.Time) {
	seen, err := stats.Dropped(w.fast, stats.ReasonSCIONInterface)
	if err != nil {
		return // the next look may do better
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if seen[name] <= w.told[name] || now.Before(w.quiet[name]) {
			continue
		}
		w.info(strayDrops, "interface", name, "packets", seen[name]-w.told[name])
		w.told[name], w.quiet[name] = seen[name], now.Add(dropsQuiet)
	}
}
