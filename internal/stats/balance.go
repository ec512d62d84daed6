// SPDX-License-Identifier: Apache-2.0

package stats

import "github.com/prometheus/client_golang/prometheus"

// Balance holds the counters of a load balancer.
type Balance struct {
	VIPs []BalanceVIP
	// Flows is the number of flows that the flow table is made for, Used an estimate of the number in it, Memory its size in
	// bytes.
	Flows, Used, Memory uint64
	// Nowhere is set while no interface carries the load balancer. No VIP is served then, and the health of backends is
	// unknown.
	Nowhere bool
}

// BalanceVIP holds the counters of a VIP.
type BalanceVIP struct {
	// Name has address, port and protocol: "192.0.2.1:80/tcp".
	Name string
	// Empty is set if no backend takes new flows.
	Empty bool
	// Events counts packets or flows, by what has happened to them.
	Events   map[string]uint64
	Backends []BalanceBackend
}

// BalanceBackend holds the counters of a backend of a VIP.
type BalanceBackend struct {
	Addr string
	// Packets counts packets sent to the backend, Bytes their IP packets as received, Flows the flows that entered the flow
	// table.
	Packets, Bytes, Flows uint64
	// Failing is set if its health checks fail, Resolved if its next hop is known.
	Failing, Resolved bool
}

// BalanceSource is a PortSource that may also have a load balancer. BalanceStats returns nil if there is none.
type BalanceSource interface {
	BalanceStats() (*Balance, error)
}

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

func describeBalance(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		backendPacketsDesc, backendBytesDesc, backendFlowsDesc, backendHealthyDesc, backendResolvedDesc, vipServedDesc, vipEventsDesc,
		flowTableDesc, flowTableUsedDesc, flowTableBytesDesc,
	} {
		ch <- d
	}
}

// collectBalance collects the metrics of a source that is a BalanceSource.
func collectBalance(source any, ch chan<- prometheus.Metric) {
	s, ok := source.(BalanceSource)
	if !ok {
		return
	}
	b, err := s.BalanceStats()
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
		send(prometheus.GaugeValue, vipServedDesc, oneIf(!v.Empty && !b.Nowhere), v.Name)
		for event, n := range v.Events {
			send(prometheus.CounterValue, vipEventsDesc, n, v.Name, event)
		}
		for _, backend := range v.Backends {
			send(prometheus.CounterValue, backendPacketsDesc, backend.Packets, v.Name, backend.Addr)
			send(prometheus.CounterValue, backendBytesDesc, backend.Bytes, v.Name, backend.Addr)
			send(prometheus.CounterValue, backendFlowsDesc, backend.Flows, v.Name, backend.Addr)
			if !b.Nowhere {
				send(prometheus.GaugeValue, backendHealthyDesc, oneIf(!backend.Failing), v.Name, backend.Addr)
			}
			send(prometheus.GaugeValue, backendResolvedDesc, oneIf(backend.Resolved), v.Name, backend.Addr)
		}
	}
	send(prometheus.GaugeValue, flowTableDesc, b.Flows)
	send(prometheus.GaugeValue, flowTableUsedDesc, b.Used)
	send(prometheus.GaugeValue, flowTableBytesDesc, b.Memory)
}

func oneIf(on bool) uint64 {
	if on {
		return 1
	}
	return 0
}
