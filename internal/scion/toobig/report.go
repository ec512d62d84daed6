// SPDX-License-Identifier: Apache-2.0

package toobig

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// quiet is the least time between two lines of the log about a link.
const quiet = time.Minute

// report is what the log has of the counters: the packets of each link that were too big, and when the next line may come.
type report struct {
	mu     sync.Mutex
	logged map[string]uint64
	next   map[string]time.Time
}

func newReport() *report { return &report{logged: map[string]uint64{}, next: map[string]time.Time{}} }

// Look writes to the log which links packets were too big for since the last look, each link at most once a minute.
func (g *Guard) Look(now time.Time, info func(message string, fields ...any)) {
	r := g.report
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(g.counts)) {
		c := g.counts[name]
		answered, dropped, fragmented := c.Answered.Load(), c.Dropped.Load(), c.Fragmented.Load()
		all := answered + dropped + fragmented
		if all == r.logged[name] || now.Before(r.next[name]) {
			continue
		}
		info("Packets too big for a link: the network below it takes shorter ones than the topology says, or hosts send longer ones",
			"link", name, "packets", all-r.logged[name], "limit", c.room.Load())
		r.logged[name], r.next[name] = all, now.Add(quiet)
	}
}

var desc = prometheus.NewDesc("culvert_scion_too_big_packets_total",
	"Packets that the slow path found too big for the link that they were to leave by, by link of the router and what became of them.",
	[]string{"link", "outcome"}, nil)

// Describe implements prometheus.Collector.
func (g *Guard) Describe(ch chan<- *prometheus.Desc) { ch <- desc }

// Collect implements prometheus.Collector.
func (g *Guard) Collect(ch chan<- prometheus.Metric) {
	for name, c := range g.counts {
		for outcome, n := range map[string]uint64{"answered": c.Answered.Load(), "dropped": c.Dropped.Load(), "fragmented": c.Fragmented.Load()} {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), name, outcome)
		}
	}
}
