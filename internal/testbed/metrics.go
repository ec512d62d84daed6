// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics returns what a collector collects, one line for each series: name, labels, value.
func Metrics(c prometheus.Collector) (string, error) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	var b strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			b.WriteString(f.GetName())
			for _, l := range m.GetLabel() {
				fmt.Fprintf(&b, " %s=%s", l.GetName(), l.GetValue())
			}
			fmt.Fprintf(&b, " %v\n", m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
	return b.String(), err
}
