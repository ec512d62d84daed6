// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"errors"
	"strings"
	"testing"

	"culvert/internal/testbed"
)

func TestMetrics(t *testing.T) {
	gather := func(c *counts, err error) (string, error) {
		return testbed.Metrics(collector{func() (*counts, error) { return c, err }})
	}
	const want = `culvert_lb_backend_bytes_total backend=10.0.0.11 vip=192.0.2.1:80/tcp 500
culvert_lb_backend_bytes_total backend=10.0.0.12 vip=192.0.2.1:80/tcp 0
culvert_lb_backend_flows_total backend=10.0.0.11 vip=192.0.2.1:80/tcp 2
culvert_lb_backend_flows_total backend=10.0.0.12 vip=192.0.2.1:80/tcp 0
culvert_lb_backend_healthy backend=10.0.0.11 vip=192.0.2.1:80/tcp 1
culvert_lb_backend_healthy backend=10.0.0.12 vip=192.0.2.1:80/tcp 0
culvert_lb_backend_packets_total backend=10.0.0.11 vip=192.0.2.1:80/tcp 5
culvert_lb_backend_packets_total backend=10.0.0.12 vip=192.0.2.1:80/tcp 0
culvert_lb_backend_resolved backend=10.0.0.11 vip=192.0.2.1:80/tcp 0
culvert_lb_backend_resolved backend=10.0.0.12 vip=192.0.2.1:80/tcp 1
culvert_lb_flow_table_bytes 7300
culvert_lb_flow_table_flows 100
culvert_lb_flow_table_used_flows 2
culvert_lb_vip_events_total event=untracked vip=192.0.2.1:80/tcp 3
culvert_lb_vip_served vip=192.0.2.1:80/tcp 1
culvert_lb_vip_served vip=192.0.2.9/udp 0
`
	b := &counts{Flows: 100, Used: 2, Memory: 7300, VIPs: []vipCounts{
		{Name: "192.0.2.1:80/tcp", Events: map[string]uint64{"untracked": 3}, Backends: []backendCounts{
			{Addr: "10.0.0.11", Packets: 5, Bytes: 500, Flows: 2}, {Addr: "10.0.0.12", Failing: true, Resolved: true},
		}},
		{Name: "192.0.2.9/udp", Empty: true},
	}}
	if got, err := gather(b, nil); err != nil || got != want {
		t.Errorf("got\n%s%v, want\n%s", got, err, want)
	}
	if got, err := gather(nil, nil); err != nil || got != "" {
		t.Errorf("without a load balancer: %s%v", got, err)
	}
	b.Nowhere = true
	if got, err := gather(b, nil); err != nil || strings.Contains(got, "healthy") || !strings.Contains(got, "vip_served vip=192.0.2.1:80/tcp 0") {
		t.Errorf("on no interface: %s%v", got, err)
	}
	if _, err := gather(nil, errors.New("gone")); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("error is %v", err)
	}
}
