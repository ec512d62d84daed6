// SPDX-License-Identifier: Apache-2.0

package bgpstate

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/stats"
)

var (
	stateDesc = prometheus.NewDesc("culvert_bgp_session_state",
		"1 for the state of the BGP session with a neighbor, 0 for the others: those of RFC 4271.", []string{"neighbor", "asn", "state"}, nil)
	sinceDesc = prometheus.NewDesc("culvert_bgp_session_state_since_timestamp_seconds",
		"When the BGP session with a neighbor entered its state, as Unix time.", []string{"neighbor", "asn"}, nil)
	announcedDesc = prometheus.NewDesc("culvert_bgp_session_announced_prefixes",
		"Prefixes that a neighbor has been told of in the session.", []string{"neighbor", "asn"}, nil)
	prefixDesc = prometheus.NewDesc("culvert_bgp_prefix_announced_info",
		"Always 1, for each prefix that a neighbor has been told of in the session.", []string{"neighbor", "asn", "prefix"}, nil)
)

// states are the states of RFC 4271.
var states = []string{"idle", "connect", "active", "opensent", "openconfirm", "established"}

// Describe sends the descriptions of the metrics of sessions.
func Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{stateDesc, sinceDesc, announcedDesc, prefixDesc} {
		ch <- d
	}
}

// Collect sends the metrics of sessions.
func Collect(sessions []Session, ch chan<- prometheus.Metric) {
	for _, s := range sessions {
		labels := []string{s.Neighbor.String(), strconv.FormatUint(uint64(s.ASN), 10)}
		stats.SendState(ch, stateDesc, s.State, states, labels...)
		if !s.Since.IsZero() {
			ch <- prometheus.MustNewConstMetric(sinceDesc, prometheus.GaugeValue, stats.Timestamp(s.Since), labels...)
		}
		ch <- prometheus.MustNewConstMetric(announcedDesc, prometheus.GaugeValue, float64(len(s.Announced)), labels...)
		for _, p := range s.Announced {
			ch <- prometheus.MustNewConstMetric(prefixDesc, prometheus.GaugeValue, 1, labels[0], labels[1], p.String())
		}
	}
}
