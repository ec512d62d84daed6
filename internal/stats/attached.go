// SPDX-License-Identifier: Apache-2.0

package stats

import "github.com/prometheus/client_golang/prometheus"

// AttachedSource tells of each interface that the data plane was told to be on whether it carries it, and the same of
// those where tunnels end. A PortSource may be one.
type AttachedSource interface {
	AttachedPorts() map[string]bool
}

var attachedDesc = prometheus.NewDesc("culvert_interface_attached",
	"1 for an interface that carries the program that it was told to carry, also that of 'culvert lb decap', 0 for one that does not.", []string{"interface"}, nil)

func collectAttached(source any, ch chan<- prometheus.Metric) {
	s, ok := source.(AttachedSource)
	if !ok {
		return
	}
	for name, on := range s.AttachedPorts() {
		ch <- prometheus.MustNewConstMetric(attachedDesc, prometheus.GaugeValue, float64(oneIf(on)), name)
	}
}
