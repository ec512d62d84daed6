// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/scionproto/scion/pkg/log"

	"culvert/internal/stats"
)

const (
	bfdWatchPeriod = time.Second
	// bfdLogPeriod is the least time between two lines of the log about dropped BFD packets.
	bfdLogPeriod = time.Minute
	// bfdReason is what the fast path counts them under.
	bfdReason = "scion-bfd"
)

var bfdDroppedDesc = prometheus.NewDesc("culvert_bfd_dropped_packets_total",
	"BFD packets that the fast path passed up and that did not get to the session of their link, by cause.",
	[]string{"link", "cause"}, nil)

// bfdWatch tells metrics and log of BFD packets that were dropped.
type bfdWatch struct {
	gates map[int]*bfdGate
	// fast is nil where there is no fast path.
	fast stats.PortSource
	// info writes to the log.
	info func(message string, fields ...any)
	// told is what the log knows, by where it was counted; next is when it may be told of more.
	told map[string]uint64
	next time.Time
}

func newBFDWatch(gates map[int]*bfdGate, fast FastPathCounters) *bfdWatch {
	w := &bfdWatch{gates: gates, info: log.Info}
	w.fast, _ = fast.(stats.PortSource)
	w.told, _ = w.dropped() // an adopted fast path's past is no news
	return w
}

// Describe implements prometheus.Collector.
func (w *bfdWatch) Describe(ch chan<- *prometheus.Desc) { ch <- bfdDroppedDesc }

// Collect implements prometheus.Collector.
func (w *bfdWatch) Collect(ch chan<- prometheus.Metric) {
	for _, g := range w.gates {
		for cause := bfdFine + 1; cause < bfdCauses; cause++ {
			ch <- prometheus.MustNewConstMetric(bfdDroppedDesc, prometheus.CounterValue,
				float64(g.dropped[cause].Load()), g.link, bfdCauseNames[cause])
		}
	}
}

// dropped counts the packets that should not have come, by where that was found.
func (w *bfdWatch) dropped() (map[string]uint64, error) {
	seen := map[string]uint64{}
	for _, g := range w.gates {
		seen["link "+g.link] = g.refused()
	}
	if w.fast == nil {
		return seen, nil
	}
	ports, err := stats.Dropped(w.fast, bfdReason)
	for name, packets := range ports {
		seen["interface "+name] = packets
	}
	return seen, err
}

// look writes to the log what was dropped since it was told last.
func (w *bfdWatch) look(now time.Time) {
	if now.Before(w.next) {
		return
	}
	seen, err := w.dropped()
	if err != nil {
		return // the next look may do better
	}
	for _, at := range slices.Sorted(maps.Keys(seen)) {
		if seen[at] > w.told[at] {
			kind, name, _ := strings.Cut(at, " ")
			w.info("BFD packets dropped that are not of the link's session: forged, or from before it began",
				kind, name, "packets", seen[at]-w.told[at])
			w.next = now.Add(bfdLogPeriod)
		}
	}
	w.told = seen
}
