// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/datapath"
)

var (
	rulePacketsDesc = prometheus.NewDesc("culvert_filter_rule_packets_total",
		"Packets that a rule of the filter has matched.", []string{"rule"}, nil)
	ruleBytesDesc = prometheus.NewDesc("culvert_filter_rule_bytes_total",
		"Bytes of the frames that a rule of the filter has matched.", []string{"rule"}, nil)
	ruleOverDesc = prometheus.NewDesc("culvert_filter_rule_over_packets_total",
		"Packets that a rule of the filter has dropped because they were over its rate.", []string{"rule"}, nil)
	shortDesc = prometheus.NewDesc("culvert_filter_short_packets_total",
		"Packets that ended before a byte that a rule of the filter reads.", nil, nil)
	malformedDesc = prometheus.NewDesc("culvert_filter_malformed_packets_total",
		"Packets with an IP header that contradicts itself, which are in no set of the filter.", nil, nil)
)

// counts holds a filter's counters for metrics.
type counts struct {
	Counters
	limits map[string]bool // the names of rules whose action is Limit
}

// count returns the counters of a data plane, nil if its filter has neither rules nor services.
func count(inst *datapath.Instance) (*counts, error) {
	p, done, err := read(inst)
	if err != nil {
		return nil, err
	}
	defer done()
	f := &p.state.Filter
	if len(f.Rules) == 0 && len(f.Services) == 0 {
		return nil, nil
	}
	all := &counts{limits: make(map[string]bool)}
	for _, r := range f.Rules {
		if r.Action == Limit {
			all.limits[r.Name] = true
		}
	}
	all.Counters, err = p.counters()
	return all, err
}

type collector struct{ count func() (*counts, error) }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rulePacketsDesc, ruleBytesDesc, ruleOverDesc, shortDesc, malformedDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	all, err := c.count()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(rulePacketsDesc, err)
		return
	}
	if all == nil {
		return
	}
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for _, r := range all.Rules {
		counter(rulePacketsDesc, r.Matched.Packets, r.Name)
		counter(ruleBytesDesc, r.Matched.Bytes, r.Name)
		if all.limits[r.Name] {
			counter(ruleOverDesc, r.Over.Packets, r.Name)
		}
	}
	counter(shortDesc, all.Short.Packets)
	counter(malformedDesc, all.Malformed.Packets)
}
