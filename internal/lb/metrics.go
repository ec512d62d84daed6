// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/datapath"
	"culvert/internal/lb/bgpstate"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/peerstate"
	"culvert/internal/lb/sourcestate"
	"culvert/internal/stats"
)

var (
	ofBackend          = []string{"vip", "backend"}
	backendPacketsDesc = prometheus.NewDesc("culvert_lb_backend_packets_total",
		"Packets sent to a backend of a VIP.", ofBackend, nil)
	backendBytesDesc = prometheus.NewDesc("culvert_lb_backend_bytes_total",
		"Bytes of the IP packets sent to a backend of a VIP, without what was put in front of them.", ofBackend, nil)
	backendFlowsDesc = prometheus.NewDesc("culvert_lb_backend_flows_total",
		"Flows of a backend of a VIP that were taken into the flow table.", ofBackend, nil)
	backendStateDesc = prometheus.NewDesc("culvert_lb_backend_state",
		"1 for the state of a backend, 0 for the others: up or down by its checks; unknown, not checked yet; unchecked, its VIP has no checks; detached, no interface carries the load balancer.",
		[]string{"vip", "backend", "state"}, nil)
	backendChecksDesc = prometheus.NewDesc("culvert_lb_backend_checks_total",
		"Health checks of a backend of a VIP.", ofBackend, nil)
	backendFailuresDesc = prometheus.NewDesc("culvert_lb_backend_check_failures_total",
		"Health checks of a backend of a VIP that have failed.", ofBackend, nil)
	backendResolvedDesc = prometheus.NewDesc("culvert_lb_backend_resolved",
		"1 for a backend whose next hop is known, else 0.", ofBackend, nil)
	backendWeightDesc = prometheus.NewDesc("culvert_lb_backend_weight",
		"The weight by which a backend gets new flows, 0 for a drained one.", ofBackend, nil)
	vipServedDesc = prometheus.NewDesc("culvert_lb_vip_served",
		"1 for a VIP that has a backend for new flows, else 0.", []string{"vip"}, nil)
	vipAnnouncedDesc = prometheus.NewDesc("culvert_lb_vip_announced_neighbors",
		"BGP neighbors to which the address of a VIP is announced; left out without BGP.", []string{"vip"}, nil)
	vipEventsDesc = prometheus.NewDesc("culvert_lb_vip_events_total",
		"What has happened to packets and flows of a VIP beside being sent to a backend.", []string{"vip", "event"}, nil)
	flowsDesc = prometheus.NewDesc("culvert_lb_flow_table_flows",
		"Flows in the flow table, an estimate.", nil, nil)
	flowCapacityDesc = prometheus.NewDesc("culvert_lb_flow_table_capacity",
		"Flows that the flow table is made for.", nil, nil)
	flowBytesDesc = prometheus.NewDesc("culvert_lb_flow_table_bytes",
		"Memory of the flow table.", nil, nil)
	insertLimitDesc = prometheus.NewDesc("culvert_lb_flow_insert_limit_flows_per_second",
		"New flows that may enter the flow table in a second.", nil, nil)
	vipsLimitDesc     = prometheus.NewDesc("culvert_lb_vips_limit", "VIPs that there is room for.", nil, nil)
	backendsLimitDesc = prometheus.NewDesc("culvert_lb_backends_limit", "Backends of all VIPs together that there is room for.", nil, nil)
)

// backendStates are the states of backends in metrics.
var backendStates = []string{
	lbplane.Up.String(), lbplane.Down.String(), lbplane.Unknown.String(), stateUnchecked, stateDetached,
}

// Part is the load balancer's part of a data plane, with metrics.
type Part struct{ *lbplane.Part }

// NewPart turns the load balancer on.
func NewPart(o lbplane.Options) Part { return Part{lbplane.NewPart(o)} }

// Collectors implements datapath.Metered.
func (Part) Collectors(inst *datapath.Instance) []prometheus.Collector {
	return []prometheus.Collector{collector{func() (*counts, error) { return count(inst) }}}
}

// collector collects the metrics of what count returns, none for nil.
type collector struct{ count func() (*counts, error) }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		backendPacketsDesc, backendBytesDesc, backendFlowsDesc, backendStateDesc, backendChecksDesc, backendFailuresDesc,
		backendResolvedDesc, backendWeightDesc, vipServedDesc, vipAnnouncedDesc, vipEventsDesc, flowsDesc, flowCapacityDesc,
		flowBytesDesc, insertLimitDesc, vipsLimitDesc, backendsLimitDesc,
	} {
		ch <- d
	}
	bgpstate.Describe(ch)
	peerstate.Describe(ch)
	sourcestate.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	all, err := c.count()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(backendPacketsDesc, err)
		return
	}
	if all == nil {
		return
	}
	send := func(kind prometheus.ValueType, d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, float64(n), labels...)
	}
	for _, v := range all.VIPs {
		send(prometheus.GaugeValue, vipServedDesc, stats.OneIf(v.Served), v.Name)
		if all.BGP {
			send(prometheus.GaugeValue, vipAnnouncedDesc, uint64(v.Announced), v.Name)
		}
		for _, event := range lbplane.EventNames() {
			send(prometheus.CounterValue, vipEventsDesc, v.Events[event], v.Name, event)
		}
		for _, b := range v.Backends {
			send(prometheus.CounterValue, backendPacketsDesc, b.Packets, v.Name, b.Addr)
			send(prometheus.CounterValue, backendBytesDesc, b.Bytes, v.Name, b.Addr)
			send(prometheus.CounterValue, backendFlowsDesc, b.Flows, v.Name, b.Addr)
			stats.SendState(ch, backendStateDesc, b.State, backendStates, v.Name, b.Addr)
			send(prometheus.CounterValue, backendChecksDesc, b.Checks, v.Name, b.Addr)
			send(prometheus.CounterValue, backendFailuresDesc, b.Failures, v.Name, b.Addr)
			send(prometheus.GaugeValue, backendResolvedDesc, stats.OneIf(b.Resolved), v.Name, b.Addr)
			send(prometheus.GaugeValue, backendWeightDesc, uint64(b.Weight), v.Name, b.Addr)
		}
	}
	send(prometheus.GaugeValue, flowsDesc, all.Flows)
	send(prometheus.GaugeValue, flowCapacityDesc, uint64(all.Options.Flows))
	send(prometheus.GaugeValue, flowBytesDesc, all.Memory)
	send(prometheus.GaugeValue, insertLimitDesc, uint64(all.Options.InsertRate))
	send(prometheus.GaugeValue, vipsLimitDesc, uint64(all.Options.VIPs))
	send(prometheus.GaugeValue, backendsLimitDesc, uint64(all.Options.Backends))
	bgpstate.Collect(all.Sessions, ch)
	peerstate.Collect(all.Peers, ch)
	sourcestate.Collect(all.Sources, ch)
}
