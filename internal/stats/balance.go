// SPDX-License-Identifier: Apache-2.0

package stats

import "github.com/prometheus/client_golang/prometheus"

// Balance is what a load balancer has counted.
type Balance struct {
	VIPs []BalanceVIP
	// Flows is how many flows the flow table is made for, Used about how many it has, Memory its size in bytes.
	Flows, Used, Memory uint64
	// Nowhere says that no interface carries the load balancer: no VIP is served, and nobody knows who is healthy.
	Nowhere bool
}

// BalanceVIP is a VIP.
type BalanceVIP struct {
	// Name is as people write it: "192.0.2.1:80/tcp".
	Name string
	// Empty says that nobody takes new flows.
	Empty bool
	// Events are packets or flows, by what has happened to them.
	Events   map[string]uint64
	Backends []BalanceBackend
}

// BalanceBackend is a backend of a VIP.
type BalanceBackend struct {
	Addr string
	// Packets, and the Bytes of IP packets as they came in; Flows are those taken into the flow table.
	Packets, Bytes, Flows uint64
	// Failing says that its checks fail, Resolved that its next hop is known.
	Failing, Resolved bool
}

// BalanceSource gives the counters of the load balancer, nil if there is none. A PortSource may be one.
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

// collectBalance gives the counters of a source that has any.
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
		for _, r := range v.Backends {
			send(prometheus.CounterValue, backendPacketsDesc, r.Packets, v.Name, r.Addr)
			send(prometheus.CounterValue, backendBytesDesc, r.Bytes, v.Name, r.Addr)
			send(prometheus.CounterValue, backendFlowsDesc, r.Flows, v.Name, r.Addr)
			if !b.Nowhere {
				send(prometheus.GaugeValue, backendHealthyDesc, oneIf(!r.Failing), v.Name, r.Addr)
			}
			send(prometheus.GaugeValue, backendResolvedDesc, oneIf(r.Resolved), v.Name, r.Addr)
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
