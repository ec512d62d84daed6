// SPDX-License-Identifier: Apache-2.0

package peerstate

import (
	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/stats"
)

var (
	ofPeer = []string{"peer"}
	upDesc = prometheus.NewDesc("culvert_lb_peer_up",
		"1 for a peer that exchanges flows with this machine and has been heard within the last seconds, else 0.", ofPeer, nil)
	agreesDesc = prometheus.NewDesc("culvert_lb_peer_agrees",
		"1 for a peer whose rings are those of this machine, else 0.", ofPeer, nil)
	datagramsDesc = prometheus.NewDesc("culvert_lb_peer_datagrams_total",
		"Datagrams that have come in the name of a peer, or were lost on the way.", []string{"peer", "result"}, nil)
	strangersDesc = prometheus.NewDesc("culvert_lb_peer_strangers_total",
		"Datagrams and connections from addresses that are no peer's.", nil, nil)
	flowsDesc = prometheus.NewDesc("culvert_lb_peer_flows_total",
		"Flows that peers have told, by what became of them.", []string{"result"}, nil)
	toldDesc = prometheus.NewDesc("culvert_lb_peer_told_flows_total",
		"Flows that were told to the peers, each time anew.", nil, nil)
	sendErrorsDesc = prometheus.NewDesc("culvert_lb_peer_send_errors_total",
		"Datagrams to peers that could not be sent.", nil, nil)
	deviatingDesc = prometheus.NewDesc("culvert_lb_peer_deviating_flows",
		"Flows of this machine whose backend is another one than the ring's.", nil, nil)
	untoldDesc = prometheus.NewDesc("culvert_lb_peer_untold_flows",
		"Flows among them that the peers do not know, because they are more than the limit.", nil, nil)
	heldDesc = prometheus.NewDesc("culvert_lb_peer_held_flows",
		"Flows in the flow table that are known from peers alone.", nil, nil)
	limitDesc = prometheus.NewDesc("culvert_lb_peer_flows_limit",
		"The most flows that are told, and the most that are held.", nil, nil)
	bulkDesc = prometheus.NewDesc("culvert_lb_peer_bulk_state",
		"1 for the state of asking the peers at the start, 0 for the others: off; asking; done; incomplete, time was up.", []string{"state"}, nil)
)

// Describe sends the descriptions of the metrics of the exchange.
func Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		upDesc, agreesDesc, datagramsDesc, strangersDesc, flowsDesc, toldDesc, sendErrorsDesc, deviatingDesc, untoldDesc, heldDesc,
		limitDesc, bulkDesc,
	} {
		ch <- d
	}
}

// Collect sends the metrics of the exchange, none for nil.
func Collect(s *State, ch chan<- prometheus.Metric) {
	if s == nil {
		return
	}
	send := func(kind prometheus.ValueType, d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, float64(n), labels...)
	}
	for _, p := range s.Peers {
		name := p.Address.String()
		send(prometheus.GaugeValue, upDesc, stats.OneIf(p.Up), name)
		send(prometheus.GaugeValue, agreesDesc, stats.OneIf(p.Up && !p.OtherSeed && !p.OtherRings), name)
		for _, result := range Datagrams {
			send(prometheus.CounterValue, datagramsDesc, p.Datagrams[result], name, result)
		}
	}
	for _, result := range Flows {
		send(prometheus.CounterValue, flowsDesc, s.Flows[result], result)
	}
	send(prometheus.CounterValue, strangersDesc, s.Strangers)
	send(prometheus.CounterValue, toldDesc, s.Told)
	send(prometheus.CounterValue, sendErrorsDesc, s.SendErrors)
	send(prometheus.GaugeValue, deviatingDesc, s.Deviating)
	send(prometheus.GaugeValue, untoldDesc, s.Untold)
	send(prometheus.GaugeValue, heldDesc, s.Held)
	send(prometheus.GaugeValue, limitDesc, s.Limit)
	stats.SendState(ch, bulkDesc, s.Bulk, []string{BulkOff, BulkAsking, BulkDone, BulkIncomplete})
}
