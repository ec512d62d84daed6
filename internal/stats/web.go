// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

var webDesc = prometheus.NewDesc("culvert_web_up",
	"1 if the page to look at is there, 0 if nobody gets it. Without a page it is left out.", nil, nil)

// Web is a collector that tells whether the page to look at is there.
type Web struct {
	mu         sync.Mutex
	wanted, up bool
}

// Set notes whether there is to be a page, and whether it is there.
func (w *Web) Set(wanted, up bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted, w.up = wanted, up
}

// Describe implements prometheus.Collector.
func (w *Web) Describe(ch chan<- *prometheus.Desc) { ch <- webDesc }

// Collect implements prometheus.Collector.
func (w *Web) Collect(ch chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wanted {
		ch <- prometheus.MustNewConstMetric(webDesc, prometheus.GaugeValue, float64(OneIf(w.up)))
	}
}
