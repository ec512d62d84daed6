// SPDX-License-Identifier: Apache-2.0

package stats

import "github.com/prometheus/client_golang/prometheus"

// Filter holds the counters of a packet filter.
type Filter struct {
	Rules []FilterRule
	// Short counts packets that ended before the bytes that a rule looks at, Malformed those whose IP header contradicts
	// itself.
	Short, Malformed uint64
}

// FilterRule holds the counters of a rule since it was added.
type FilterRule struct {
	Name string
	// Packets and Bytes count the frames that the rule has matched.
	Packets, Bytes uint64
	// Limit tells whether the rule has a rate. OverPackets counts the packets dropped because they exceeded it.
	Limit       bool
	OverPackets uint64
}

// FilterSource is a PortSource that may also have a packet filter. FilterStats returns nil if there is none.
type FilterSource interface {
	FilterStats() (*Filter, error)
}

var (
	rulePacketsDesc = prometheus.NewDesc("culvert_filter_rule_packets_total",
		"Packets that a rule of the filter has matched.", []string{"rule"}, nil)
	ruleBytesDesc = prometheus.NewDesc("culvert_filter_rule_bytes_total",
		"Bytes of the frames that a rule of the filter has matched.", []string{"rule"}, nil)
	ruleOverDesc = prometheus.NewDesc("culvert_filter_rule_over_packets_total",
		"Packets that a rule of the filter has dropped because they were over its rate.", []string{"rule"}, nil)
	shortDesc = prometheus.NewDesc("culvert_filter_short_packets_total",
		"Packets that ended before what a rule of the filter asked for.", nil, nil)
	malformedDesc = prometheus.NewDesc("culvert_filter_malformed_packets_total",
		"Packets with an IP header that contradicts itself, which are in no set of the filter.", nil, nil)
)

func describeFilter(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rulePacketsDesc, ruleBytesDesc, ruleOverDesc, shortDesc, malformedDesc} {
		ch <- d
	}
}

// collectFilter collects the metrics of a source that is a FilterSource.
func collectFilter(source any, ch chan<- prometheus.Metric) {
	s, ok := source.(FilterSource)
	if !ok {
		return
	}
	f, err := s.FilterStats()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(rulePacketsDesc, err)
		return
	}
	if f == nil {
		return
	}
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for _, r := range f.Rules {
		counter(rulePacketsDesc, r.Packets, r.Name)
		counter(ruleBytesDesc, r.Bytes, r.Name)
		if r.Limit {
			counter(ruleOverDesc, r.OverPackets, r.Name)
		}
	}
	counter(shortDesc, f.Short)
	counter(malformedDesc, f.Malformed)
}
