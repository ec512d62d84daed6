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
	// bfdWatchPeriod is how often the counters of dropped BFD packets are read.
	bfdWatchPeriod = time.Second
	// bfdLogPeriod is the least time between two reports of dropped BFD packets in the log.
	bfdLogPeriod = time.Minute
	// bfdReason is the reason that the fast path counts dropped BFD packets under.
	bfdReason = "scion-bfd"
)

var bfdDroppedDesc = prometheus.NewDesc("culvert_scion_bfd_dropped_packets_total",
	"BFD packets that the fast path passed up and that did not get to the session of their link, by link of the router and reason.",
	[]string{"link", "reason"}, nil)

// bfdWatch reports dropped BFD packets in the metrics and the log.
type bfdWatch struct {
	gates map[int]*bfdGate
	// fast is nil if there is no fast path.
	fast stats.PortSource
	// info writes to the log.
	info func(message string, fields ...any)
	// logged holds the counts that the log has reported, by link or interface. The next report comes no earlier than next.
	logged map[string]uint64
	next   time.Time
}

func newBFDWatch(gates map[int]*bfdGate, fast FastPathCounters) *bfdWatch {
	w := &bfdWatch{gates: gates, info: log.Info}
	w.fast, _ = fast.(stats.PortSource)
	w.logged, _ = w.dropped() // what an adopted fast path dropped before is not reported
	return w
}

// Describe implements prometheus.Collector.
func (w *bfdWatch) Describe(ch chan<- *prometheus.Desc) { ch <- bfdDroppedDesc }

// Collect implements prometheus.Collector.
func (w *bfdWatch) Collect(ch chan<- prometheus.Metric) {
	for _, g := range w.gates {
		for cause := bfdAccepted + 1; cause < bfdCauses; cause++ {
			ch <- prometheus.MustNewConstMetric(bfdDroppedDesc, prometheus.CounterValue,
				float64(g.dropped[cause].Load()), g.link, bfdCauseNames[cause])
		}
	}
}

// dropped returns the number of refused packets by "link NAME" for those that a gate dropped, and by "interface NAME" for
// those that the fast path dropped.
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

// look logs what was dropped since the last report.
func (w *bfdWatch) look(now time.Time) {
	if now.Before(w.next) {
		return
	}
	seen, err := w.dropped()
	if err != nil {
		return // the next call tries again
	}
	for _, at := range slices.Sorted(maps.Keys(seen)) {
		if seen[at] > w.logged[at] {
			kind, name, _ := strings.Cut(at, " ")
			w.info("BFD packets dropped that are not of the link's session: forged, or from before it began",
				kind, name, "packets", seen[at]-w.logged[at])
			w.next = now.Add(bfdLogPeriod)
		}
	}
	w.logged = seen
}
