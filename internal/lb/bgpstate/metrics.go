// SPDX-License-Identifier: Apache-2.0

package bgpstate

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/datapath"
	"culvert/internal/stats"
)

var (
	establishedDesc = prometheus.NewDesc("culvert_bgp_session_established",
		"1 for a neighbor with an established BGP session, else 0.", []string{"neighbor", "asn"}, nil)
	announcedDesc = prometheus.NewDesc("culvert_bgp_announced_prefixes",
		"Prefixes that a neighbor has been told of in the session.", []string{"neighbor", "asn"}, nil)
)

// NewCollector returns a collector for the sessions of the process that serves a data plane.
func NewCollector(inst *datapath.Instance) prometheus.Collector { return collector{inst} }

type collector struct{ inst *datapath.Instance }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- establishedDesc
	ch <- announcedDesc
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	sessions, _, err := Of(c.inst)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(establishedDesc, err)
		return
	}
	for _, n := range sessions {
		labels := []string{n.Neighbor.String(), strconv.FormatUint(uint64(n.ASN), 10)}
		ch <- prometheus.MustNewConstMetric(establishedDesc, prometheus.GaugeValue, float64(stats.OneIf(n.Established())), labels...)
		ch <- prometheus.MustNewConstMetric(announcedDesc, prometheus.GaugeValue, float64(len(n.Announced)), labels...)
	}
}
