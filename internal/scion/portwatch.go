// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"maps"
	"slices"
	"time"

	"github.com/scionproto/scion/pkg/log"

	"culvert/internal/stats"
)

const (
	// interfaceReason is what the fast path counts datagrams of links under that came by another interface.
	interfaceReason = "scion-interface"
	// strayDrops is what the log says of them.
	strayDrops = "Datagrams of links dropped: they came by another interface than the route to the far end leads to"
)

// portWatch tells the log what the fast path drops for one reason, a line a minute for each interface.
type portWatch struct {
	fast            stats.PortSource
	reason, message string
	// info writes to the log.
	info func(message string, fields ...any)
	// told is what the log knows, and quiet is until when it is told no more, both by interface.
	told  map[string]uint64
	quiet map[string]time.Time
}

// newPortWatch returns nil where there is no fast path.
func newPortWatch(fast FastPathCounters, reason, message string) *portWatch {
	source, ok := fast.(stats.PortSource)
	if !ok {
		return nil
	}
	w := &portWatch{fast: source, reason: reason, message: message, info: log.Info, quiet: map[string]time.Time{}}
	w.told, _ = droppedAt(source, reason) // an adopted fast path's past is no news
	return w
}

// droppedAt counts what the fast path has dropped for a reason, by interface.
func droppedAt(fast stats.PortSource, reason string) (map[string]uint64, error) {
	seen := map[string]uint64{}
	ports, err := fast.Ports()
	for _, p := range ports {
		for _, r := range p.Reasons {
			if r.Verdict == "drop" && r.Name == reason {
				seen[p.Interface] += r.Packets
			}
		}
	}
	return seen, err
}

// look writes to the log what was dropped since it was told last.
func (w *portWatch) look(now time.Time) {
	seen, err := droppedAt(w.fast, w.reason)
	if err != nil {
		return // the next look may do better
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if seen[name] <= w.told[name] || now.Before(w.quiet[name]) {
			continue
		}
		w.info(w.message, "interface", name, "packets", seen[name]-w.told[name])
		w.told[name], w.quiet[name] = seen[name], now.Add(dropsQuiet)
	}
}
