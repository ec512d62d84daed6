// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"culvert/internal/lb/bgpstate"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/sourcestate"
	"culvert/internal/testbed"
)

func TestMetrics(t *testing.T) {
	gather := func(c *counts, err error) (string, error) {
		return testbed.Metrics(collector{func() (*counts, error) { return c, err }})
	}
	const want = `culvert_bgp_prefix_announced_info asn=65000 neighbor=10.0.0.254 prefix=192.0.2.1/32 1
culvert_bgp_session_announced_prefixes asn=65000 neighbor=10.0.0.254 1
culvert_bgp_session_state asn=65000 neighbor=10.0.0.254 state=active 0
culvert_bgp_session_state asn=65000 neighbor=10.0.0.254 state=connect 0
culvert_bgp_session_state asn=65000 neighbor=10.0.0.254 state=established 1
culvert_bgp_session_state asn=65000 neighbor=10.0.0.254 state=idle 0
culvert_bgp_session_state asn=65000 neighbor=10.0.0.254 state=openconfirm 0
culvert_bgp_session_state asn=65000 neighbor=10.0.0.254 state=opensent 0
culvert_bgp_session_state_since_timestamp_seconds asn=65000 neighbor=10.0.0.254 1.5
culvert_lb_backend_bytes_total backend=10.0.0.11 vip=192.0.2.1:80/tcp 500
culvert_lb_backend_check_failures_total backend=10.0.0.11 vip=192.0.2.1:80/tcp 1
culvert_lb_backend_checks_total backend=10.0.0.11 vip=192.0.2.1:80/tcp 9
culvert_lb_backend_flows_total backend=10.0.0.11 vip=192.0.2.1:80/tcp 2
culvert_lb_backend_packets_total backend=10.0.0.11 vip=192.0.2.1:80/tcp 5
culvert_lb_backend_resolved backend=10.0.0.11 vip=192.0.2.1:80/tcp 1
culvert_lb_backend_state backend=10.0.0.11 state=detached vip=192.0.2.1:80/tcp 0
culvert_lb_backend_state backend=10.0.0.11 state=down vip=192.0.2.1:80/tcp 1
culvert_lb_backend_state backend=10.0.0.11 state=unchecked vip=192.0.2.1:80/tcp 0
culvert_lb_backend_state backend=10.0.0.11 state=unknown vip=192.0.2.1:80/tcp 0
culvert_lb_backend_state backend=10.0.0.11 state=up vip=192.0.2.1:80/tcp 0
culvert_lb_backend_weight backend=10.0.0.11 vip=192.0.2.1:80/tcp 3
culvert_lb_backends_limit 20
culvert_lb_flow_insert_limit_flows_per_second 7
culvert_lb_flow_table_bytes 7300
culvert_lb_flow_table_capacity 100
culvert_lb_flow_table_flows 2
culvert_lb_source_answered_timestamp_seconds kind=dns source=web vip=192.0.2.1:80/tcp 2.5
culvert_lb_source_answers_total kind=dns source=web vip=192.0.2.1:80/tcp 7
culvert_lb_source_answers_total kind=file source=list vip=192.0.2.9/udp 0
culvert_lb_source_backends kind=dns source=web vip=192.0.2.1:80/tcp 3
culvert_lb_source_backends kind=file source=list vip=192.0.2.9/udp 0
culvert_lb_source_changes_total kind=dns source=web vip=192.0.2.1:80/tcp 2
culvert_lb_source_changes_total kind=file source=list vip=192.0.2.9/udp 0
culvert_lb_source_failures_total kind=dns source=web vip=192.0.2.1:80/tcp 4
culvert_lb_source_failures_total kind=file source=list vip=192.0.2.9/udp 0
culvert_lb_source_leaving_backends kind=dns source=web vip=192.0.2.1:80/tcp 1
culvert_lb_source_leaving_backends kind=file source=list vip=192.0.2.9/udp 0
culvert_lb_source_state kind=dns source=web state=failing vip=192.0.2.1:80/tcp 0
culvert_lb_source_state kind=dns source=web state=held vip=192.0.2.1:80/tcp 1
culvert_lb_source_state kind=dns source=web state=ok vip=192.0.2.1:80/tcp 0
culvert_lb_source_state kind=dns source=web state=refused vip=192.0.2.1:80/tcp 0
culvert_lb_source_state kind=dns source=web state=waiting vip=192.0.2.1:80/tcp 0
culvert_lb_source_state kind=file source=list state=failing vip=192.0.2.9/udp 0
culvert_lb_source_state kind=file source=list state=held vip=192.0.2.9/udp 0
culvert_lb_source_state kind=file source=list state=ok vip=192.0.2.9/udp 0
culvert_lb_source_state kind=file source=list state=refused vip=192.0.2.9/udp 0
culvert_lb_source_state kind=file source=list state=waiting vip=192.0.2.9/udp 1
culvert_lb_vip_announced_neighbors vip=192.0.2.1:80/tcp 1
culvert_lb_vip_announced_neighbors vip=192.0.2.9/udp 0
culvert_lb_vip_events_total event=collision vip=192.0.2.1:80/tcp 0
culvert_lb_vip_events_total event=collision vip=192.0.2.9/udp 0
culvert_lb_vip_events_total event=echo vip=192.0.2.1:80/tcp 0
culvert_lb_vip_events_total event=echo vip=192.0.2.9/udp 0
culvert_lb_vip_events_total event=empty vip=192.0.2.1:80/tcp 0
culvert_lb_vip_events_total event=empty vip=192.0.2.9/udp 0
culvert_lb_vip_events_total event=fragment vip=192.0.2.1:80/tcp 0
culvert_lb_vip_events_total event=fragment vip=192.0.2.9/udp 0
culvert_lb_vip_events_total event=icmp vip=192.0.2.1:80/tcp 0
culvert_lb_vip_events_total event=icmp vip=192.0.2.9/udp 0
culvert_lb_vip_events_total event=lost vip=192.0.2.1:80/tcp 0
culvert_lb_vip_events_total event=lost vip=192.0.2.9/udp 0
culvert_lb_vip_events_total event=moved vip=192.0.2.1:80/tcp 0
culvert_lb_vip_events_total event=moved vip=192.0.2.9/udp 0
culvert_lb_vip_events_total event=quic vip=192.0.2.1:80/tcp 0
culvert_lb_vip_events_total event=quic vip=192.0.2.9/udp 0
culvert_lb_vip_events_total event=too-big vip=192.0.2.1:80/tcp 0
culvert_lb_vip_events_total event=too-big vip=192.0.2.9/udp 0
culvert_lb_vip_events_total event=untracked vip=192.0.2.1:80/tcp 3
culvert_lb_vip_events_total event=untracked vip=192.0.2.9/udp 0
culvert_lb_vip_served vip=192.0.2.1:80/tcp 1
culvert_lb_vip_served vip=192.0.2.9/udp 0
culvert_lb_vips_limit 10
`
	answered := time.UnixMilli(2500)
	c := &counts{
		Sources: []sourcestate.Source{
			{
				VIP: "192.0.2.1:80/tcp", Name: "web", Kind: "dns", State: sourcestate.Held, Backends: 3, Leaving: 1, Answered: &answered, Answers: 7,
				Failures: 4, Changes: 2,
			},
			{VIP: "192.0.2.9/udp", Name: "list", Kind: "file", State: sourcestate.Waiting},
		},
		Options: lbplane.Options{Flows: 100, InsertRate: 7, VIPs: 10, Backends: 20}, Flows: 2, Memory: 7300,
		VIPs: []vipCounts{
			{Name: "192.0.2.1:80/tcp", Served: true, Announced: 1, Events: map[string]uint64{"untracked": 3}, Backends: []backendCounts{{
				Addr: "10.0.0.11", Traffic: lbplane.Traffic{Packets: 5, Bytes: 500, Flows: 2}, Weight: 3, State: "down", Checks: 9, Failures: 1,
				Resolved: true,
			}}},
			{Name: "192.0.2.9/udp"},
		},
		BGP: true, Sessions: []bgpstate.Session{{
			Neighbor: netip.MustParseAddr("10.0.0.254"), ASN: 65000, State: "established", Since: time.UnixMilli(1500),
			Announced: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")},
		}},
	}
	if got, err := gather(c, nil); err != nil || got != want {
		t.Errorf("got\n%s%v, want\n%s", got, err, want)
	}
	if got, err := gather(nil, nil); err != nil || got != "" {
		t.Errorf("without a load balancer: %s%v", got, err)
	}
	if _, err := gather(nil, errors.New("gone")); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("error is %v", err)
	}
}
