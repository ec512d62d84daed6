// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/datapath"
	"culvert/internal/stats"
)

var (
	rulesDesc       = prometheus.NewDesc("culvert_filter_rules", "Rules of the filter.", nil, nil)
	rulePacketsDesc = prometheus.NewDesc("culvert_filter_rule_packets_total",
		"Packets that a rule of the filter has matched.", []string{"rule", "action"}, nil)
	ruleBytesDesc = prometheus.NewDesc("culvert_filter_rule_bytes_total",
		"Bytes of the frames that a rule of the filter has matched.", []string{"rule", "action"}, nil)
	ruleOverDesc = prometheus.NewDesc("culvert_filter_rule_over_limit_packets_total",
		"Packets that a rule of the filter has dropped because they were over its rate.", []string{"rule"}, nil)
	rulePacketRateDesc = prometheus.NewDesc("culvert_filter_rule_limit_packets_per_second",
		"The rate of a rule of the filter that counts in packets, for each of what per names.", []string{"rule", "per"}, nil)
	ruleByteRateDesc = prometheus.NewDesc("culvert_filter_rule_limit_bytes_per_second",
		"The rate of a rule of the filter that counts in bytes, for each of what per names.", []string{"rule", "per"}, nil)
	shortDesc = prometheus.NewDesc("culvert_filter_short_packets_total",
		"Packets that ended before a byte that a rule of the filter reads.", nil, nil)
	malformedDesc = prometheus.NewDesc("culvert_filter_malformed_packets_total",
		"Packets with an IP header that contradicts itself, which are in no set of the filter.", nil, nil)
	setEntriesDesc = prometheus.NewDesc("culvert_filter_set_entries",
		"Entries of a set of the filter that have not expired.", []string{"set", "type"}, nil)
	serviceDesc = prometheus.NewDesc("culvert_filter_protected_service_info",
		"Always 1, for each service whose SYNs are answered with cookies, and whether it is on another host.", []string{"service", "forwarded"}, nil)
	servicesDesc = prometheus.NewDesc("culvert_filter_protected_services", "Services whose SYNs are answered with cookies.", nil, nil)
)

// counts holds a filter with its counters, for metrics.
type counts struct {
	Filter
	Counters
	// entries has the number of entries of each set.
	entries map[string]int
}

// counter returns a function that counts what the filter of a data plane has.
func counter(inst *datapath.Instance) func() (*counts, error) {
	var mu sync.Mutex // two may ask at a time
	sizes := make(setSizes)
	return func() (*counts, error) {
		p, done, err := read(inst)
		if err != nil {
			return nil, err
		}
		defer done()
		all := &counts{Filter: p.state.Filter}
		if all.Counters, err = p.counters(); err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		all.entries, err = sizes.count(p)
		return all, err
	}
}

type collector struct{ count func() (*counts, error) }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		rulesDesc, rulePacketsDesc, ruleBytesDesc, ruleOverDesc, rulePacketRateDesc, ruleByteRateDesc, shortDesc, malformedDesc,
		setEntriesDesc, serviceDesc, servicesDesc,
	} {
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
	send := func(kind prometheus.ValueType, d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, float64(n), labels...)
	}
	send(prometheus.GaugeValue, rulesDesc, uint64(len(all.Filter.Rules)))
	send(prometheus.GaugeValue, servicesDesc, uint64(len(all.Services)))
	send(prometheus.CounterValue, shortDesc, all.Short.Packets)
	send(prometheus.CounterValue, malformedDesc, all.Malformed.Packets)
	rules := make(map[string]Rule)
	for _, r := range all.Filter.Rules {
		rules[r.Name] = r
	}
	for _, r := range all.Counters.Rules {
		rule := rules[r.Name]
		send(prometheus.CounterValue, rulePacketsDesc, r.Matched.Packets, r.Name, string(rule.Action))
		send(prometheus.CounterValue, ruleBytesDesc, r.Matched.Bytes, r.Name, string(rule.Action))
		if rule.Rate == nil {
			continue
		}
		send(prometheus.CounterValue, ruleOverDesc, r.Over.Packets, r.Name)
		rate := rulePacketRateDesc
		if rule.Rate.Bytes {
			rate = ruleByteRateDesc
		}
		send(prometheus.GaugeValue, rate, rule.Rate.Rate, r.Name, rule.Rate.Per.label())
	}
	for _, s := range all.Sets {
		send(prometheus.GaugeValue, setEntriesDesc, uint64(all.entries[s.Name]), s.Name, s.label())
	}
	for _, s := range all.Services {
		forwarded := "false"
		if s.Forwarded {
			forwarded = "true"
		}
		send(prometheus.GaugeValue, serviceDesc, stats.OneIf(true), s.Addr.String(), forwarded)
	}
}

// label returns what has the rate: "rule", "src" or "dst".
func (p Per) label() string {
	if p == PerRule {
		return "rule"
	}
	return string(p)
}

// label returns the type of the set: "prefix" or "endpoint".
func (s Set) label() string {
	if s.Endpoints {
		return "endpoint"
	}
	return "prefix"
}
