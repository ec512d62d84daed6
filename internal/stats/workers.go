// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	enqueuedDesc = prometheus.NewDesc("culvert_worker_enqueued_packets_total",
		"Packets given to workers, by the CPU that received them, those that a full queue has refused included.", []string{"cpu"}, nil)
	spreadDesc = prometheus.NewDesc("culvert_interface_spread",
		"With workers, 1 if they get packets of the interface, 0 if all of these stay on the CPU that receives them, because a worker's queue would lose something of them.",
		[]string{"interface"}, nil)
)

// WorkerSource is a PortSource whose packets may be spread over workers.
type WorkerSource interface {
	// Enqueued has the packets given to workers, by CPU, nil without workers.
	Enqueued() ([]uint64, error)
	// Spread tells of each attached interface whether workers get packets of it, nil without workers.
	Spread() map[string]bool
}

func collectWorkers(source PortSource, ch chan<- prometheus.Metric) {
	s, ok := source.(WorkerSource)
	if !ok {
		return
	}
	by, err := s.Enqueued()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(enqueuedDesc, err)
		return
	}
	for cpu, n := range by {
		ch <- prometheus.MustNewConstMetric(enqueuedDesc, prometheus.CounterValue, float64(n), strconv.Itoa(cpu))
	}
	for name, spread := range s.Spread() {
		ch <- prometheus.MustNewConstMetric(spreadDesc, prometheus.GaugeValue, float64(OneIf(spread)), name)
	}
}
