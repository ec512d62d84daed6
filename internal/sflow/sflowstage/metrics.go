// SPDX-License-Identifier: Apache-2.0

package sflowstage

import (
	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/datapath"
	"culvert/internal/sflow/sflowplane"
)

var (
	poolDesc = prometheus.NewDesc("culvert_sflow_pool_packets_total",
		"Packets that could have been sampled, up to the last sample of each interface and CPU, since the program was loaded.", nil, nil)
	sampledDesc = prometheus.NewDesc("culvert_sflow_sampled_packets_total",
		"Packets that were sampled since the program was loaded.", nil, nil)
	lostDesc = prometheus.NewDesc("culvert_sflow_lost_samples_total",
		"Samples for which the buffers had no room, or which no process read, since the program was loaded.", nil, nil)
	samplesDesc = prometheus.NewDesc("culvert_sflow_samples_total",
		"Samples put into datagrams, by their kind: flow, counters or discard.", []string{"kind"}, nil)
	suppressedDesc = prometheus.NewDesc("culvert_sflow_suppressed_discards_total",
		"Dropped packets that the programs told of and the process did not, because of drops in [sflow].", nil, nil)
	datagramsDesc = prometheus.NewDesc("culvert_sflow_datagrams_total",
		"Datagrams for the collector, by their result: sent or failed.", []string{"result"}, nil)
	upDesc = prometheus.NewDesc("culvert_sflow_collector_up",
		"0 while the kernel says that the collector gets nothing: refused, no way, or no address, and while the samples cannot be read; else 1. "+
			"A collector that is silent counts as up.", nil, nil)
)

// part is sFlow's part with what the process counts.
type part struct {
	*sflowplane.Part
	stats *statistics
}

// Collectors implements datapath.Metered.
func (p *part) Collectors(inst *datapath.Instance) []prometheus.Collector {
	return []prometheus.Collector{collector{inst, p.stats}}
}

type collector struct {
	inst  *datapath.Instance
	stats *statistics
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolDesc, sampledDesc, lostDesc, samplesDesc, suppressedDesc, datagramsDesc, upDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	n, err := sflowplane.ReadCounted(c.inst)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(poolDesc, err)
		return
	}
	counter := func(d *prometheus.Desc, value uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	counter(poolDesc, n.Pool)
	counter(sampledDesc, n.Samples)
	counter(lostDesc, n.Lost)
	s := c.stats
	counter(samplesDesc, s.flows.Load(), "flow")
	counter(samplesDesc, s.counters.Load(), "counters")
	counter(samplesDesc, s.discards.Load(), "discard")
	counter(suppressedDesc, s.suppressed.Load())
	counter(datagramsDesc, s.datagrams.Load(), "sent")
	counter(datagramsDesc, s.failed.Load(), "failed")
	up := 1.0
	if s.failing.Load() {
		up = 0
	}
	ch <- prometheus.MustNewConstMetric(upDesc, prometheus.GaugeValue, up)
}
