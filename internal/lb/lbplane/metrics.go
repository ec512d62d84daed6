// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"github.com/prometheus/client_golang/prometheus"

	"culvert/internal/datapath"
	"culvert/internal/lb/bgpstate"
	"culvert/internal/stats"
)

var (
	backendPacketsDesc = prometheus.NewDesc("culvert_lb_backend_packets_total",
		"Packets sent to a backend of a VIP.", []string{"vip", "backend"}, nil)
	backendBytesDesc = prometheus.NewDesc("culvert_lb_backend_bytes_total",
		"Bytes of the IP packets sent to a backend of a VIP, without what was put in front of them.", []string{"vip", "backend"}, nil)
	backendFlowsDesc = prometheus.NewDesc("culvert_lb_backend_flows_total",
		"Flows of a backend of a VIP that were taken into the flow table.", []string{"vip", "backend"}, nil)
	backendHealthyDesc = prometheus.NewDesc("culvert_lb_backend_healthy",
		"0 for a backend whose checks fail, else 1; left out while no interface carries the load balancer.", []string{"vip", "backend"}, nil)
	backendResolvedDesc = prometheus.NewDesc("culvert_lb_backend_resolved",
		"1 for a backend whose next hop is known, else 0.", []string{"vip", "backend"}, nil)
	vipServedDesc = prometheus.NewDesc("culvert_lb_vip_served",
		"1 for a VIP that has a backend for new flows, else 0.", []string{"vip"}, nil)
	vipEventsDesc = prometheus.NewDesc("culvert_lb_vip_events_total",
		"What has happened to packets and flows of a VIP beside being sent to a backend.", []string{"vip", "event"}, nil)
	flowTableDesc = prometheus.NewDesc("culvert_lb_flow_table_flows",
		"Flows that the flow table is made for.", nil, nil)
	flowTableUsedDesc = prometheus.NewDesc("culvert_lb_flow_table_used_flows",
		"Flows in the flow table, an estimate.", nil, nil)
	flowTableBytesDesc = prometheus.NewDesc("culvert_lb_flow_table_bytes",
		"Memory of the flow table.", nil, nil)
)

// Collectors implements datapath.Metered. It returns the collectors of the load balancer and of its BGP sessions.
func (p *Part) Collectors(inst *datapath.Instance) []prometheus.Collector {
	return []prometheus.Collector{
		collector{func() (*counts, error) { return count(inst) }},
		bgpstate.NewCollector(inst),
	}
}

// collector collects the metrics of what count returns, none for nil.
type collector struct{ count func() (*counts, error) }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		backendPacketsDesc, backendBytesDesc, backendFlowsDesc, backendHealthyDesc, backendResolvedDesc, vipServedDesc, vipEventsDesc,
		flowTableDesc, flowTableUsedDesc, flowTableBytesDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	b, err := c.count()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(backendPacketsDesc, err)
		return
	}
	if b == nil {
		return
	}
	send := func(kind prometheus.ValueType, d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, float64(n), labels...)
	}
	for _, v := range b.VIPs {
		send(prometheus.GaugeValue, vipServedDesc, stats.OneIf(!v.Empty && !b.Nowhere), v.Name)
		for event, n := range v.Events {
			send(prometheus.CounterValue, vipEventsDesc, n, v.Name, event)
		}
		for _, backend := range v.Backends {
			send(prometheus.CounterValue, backendPacketsDesc, backend.Packets, v.Name, backend.Addr)
			send(prometheus.CounterValue, backendBytesDesc, backend.Bytes, v.Name, backend.Addr)
			send(prometheus.CounterValue, backendFlowsDesc, backend.Flows, v.Name, backend.Addr)
			if !b.Nowhere {
				send(prometheus.GaugeValue, backendHealthyDesc, stats.OneIf(!backend.Failing), v.Name, backend.Addr)
			}
			send(prometheus.GaugeValue, backendResolvedDesc, stats.OneIf(backend.Resolved), v.Name, backend.Addr)
		}
	}
	send(prometheus.GaugeValue, flowTableDesc, b.Flows)
	send(prometheus.GaugeValue, flowTableUsedDesc, b.Used)
	send(prometheus.GaugeValue, flowTableBytesDesc, b.Memory)
}
