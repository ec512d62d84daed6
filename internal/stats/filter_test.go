// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// filterSource is a source without interfaces and with a filter, or an error.
type filterSource struct {
	f   *Filter
	err error
}

func (filterSource) Ports() ([]Port, error) { return nil, nil }

func (s filterSource) FilterStats() (*Filter, error) { return s.f, s.err }

// gather returns the metrics of a source, a line each.
func gather(s PortSource) (string, error) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(s))
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

func TestFilterMetrics(t *testing.T) {
	const want = `culvert_filter_malformed_packets_total 2
culvert_filter_rule_bytes_total rule=dns 640
culvert_filter_rule_bytes_total rule=noicmp 98
culvert_filter_rule_over_packets_total rule=dns 3
culvert_filter_rule_packets_total rule=dns 10
culvert_filter_rule_packets_total rule=noicmp 1
culvert_filter_short_packets_total 1
`
	f := &Filter{Short: 1, Malformed: 2, Rules: []FilterRule{
		{Name: "noicmp", Packets: 1, Bytes: 98}, {Name: "dns", Packets: 10, Bytes: 640, Limit: true, OverPackets: 3},
	}}
	if got, err := gather(filterSource{f: f}); err != nil || got != want {
		t.Errorf("got\n%s%v, want\n%s", got, err, want)
	}
	if got, err := gather(filterSource{}); err != nil || got != "" {
		t.Errorf("without a filter: %s%v", got, err)
	}
	if _, err := gather(filterSource{err: errors.New("gone")}); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("error is %v", err)
	}
}
