// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/lb/bgpstate"
)

// BGPSource is a PortSource that may also have BGP sessions, which announce VIPs. There are none without [lb.bgp].
type BGPSource interface {
	BGPSessions() (sessions []bgpstate.Session, known bool, err error)
}

var (
	bgpEstablishedDesc = prometheus.NewDesc("culvert_bgp_session_established",
		"1 for a neighbor with an established BGP session, else 0.", []string{"neighbor", "asn"}, nil)
	bgpAnnouncedDesc = prometheus.NewDesc("culvert_bgp_announced_prefixes",
		"Prefixes that a neighbor has been told of in the session.", []string{"neighbor", "asn"}, nil)
)

func describeBGP(ch chan<- *prometheus.Desc) {
	ch <- bgpEstablishedDesc
	ch <- bgpAnnouncedDesc
}

func collectBGP(source any, ch chan<- prometheus.Metric) {
	s, ok := source.(BGPSource)
	if !ok {
		return
	}
	sessions, _, err := s.BGPSessions()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(bgpEstablishedDesc, err)
		return
	}
	for _, n := range sessions {
		labels := []string{n.Neighbor.String(), strconv.FormatUint(uint64(n.ASN), 10)}
		ch <- prometheus.MustNewConstMetric(bgpEstablishedDesc, prometheus.GaugeValue, float64(oneIf(n.Established())), labels...)
		ch <- prometheus.MustNewConstMetric(bgpAnnouncedDesc, prometheus.GaugeValue, float64(len(n.Announced)), labels...)
	}
}
