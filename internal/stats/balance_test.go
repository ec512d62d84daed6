// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"errors"
	"strings"
	"testing"
)

// balanceSource is a source without interfaces and with a load balancer, or an error.
type balanceSource struct {
	b   *Balance
	err error
}

func (balanceSource) Ports() ([]Port, error) { return nil, nil }

func (s balanceSource) BalanceStats() (*Balance, error) { return s.b, s.err }

func TestBalanceMetrics(t *testing.T) {
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
	b := &Balance{Flows: 100, Used: 2, Memory: 7300, VIPs: []BalanceVIP{
		{Name: "192.0.2.1:80/tcp", Events: map[string]uint64{"untracked": 3}, Backends: []BalanceBackend{
			{Addr: "10.0.0.11", Packets: 5, Bytes: 500, Flows: 2}, {Addr: "10.0.0.12", Failing: true, Resolved: true},
		}},
		{Name: "192.0.2.9/udp", Empty: true},
	}}
	if got, err := gather(balanceSource{b: b}); err != nil || got != want {
		t.Errorf("got\n%s%v, want\n%s", got, err, want)
	}
	if got, err := gather(balanceSource{}); err != nil || got != "" {
		t.Errorf("without a load balancer: %s%v", got, err)
	}
	b.Nowhere = true
	if got, err := gather(balanceSource{b: b}); err != nil || strings.Contains(got, "healthy") || !strings.Contains(got, "vip_served vip=192.0.2.1:80/tcp 0") {
		t.Errorf("on no interface: %s%v", got, err)
	}
	if _, err := gather(balanceSource{err: errors.New("gone")}); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("error is %v", err)
	}
}
