// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"culvert/internal/testbed"
)

func TestFilterMetrics(t *testing.T) {
	gather := func(c *counts, err error) (string, error) {
		return testbed.Metrics(collector{func() (*counts, error) { return c, err }})
	}
	const want = `culvert_filter_malformed_packets_total 2
culvert_filter_protected_service_info forwarded=true service=192.0.2.1:80 1
culvert_filter_protected_services 1
culvert_filter_rule_bytes_total action=drop rule=noicmp 98
culvert_filter_rule_bytes_total action=limit rule=bulk 0
culvert_filter_rule_bytes_total action=limit rule=dns 640
culvert_filter_rule_limit_bytes_per_second per=rule rule=bulk 5000
culvert_filter_rule_limit_packets_per_second per=src rule=dns 100
culvert_filter_rule_over_limit_packets_total rule=bulk 0
culvert_filter_rule_over_limit_packets_total rule=dns 3
culvert_filter_rule_packets_total action=drop rule=noicmp 1
culvert_filter_rule_packets_total action=limit rule=bulk 0
culvert_filter_rule_packets_total action=limit rule=dns 10
culvert_filter_rules 3
culvert_filter_set_entries set=bad type=prefix 7
culvert_filter_set_entries set=web type=endpoint 0
culvert_filter_short_packets_total 1
`
	c := &counts{
		Filter: Filter{
			Rules: []Rule{
				{Name: "noicmp", Action: Drop}, {Name: "dns", Action: Limit, Rate: &Rate{Rate: 100, Per: PerSrc}},
				{Name: "bulk", Action: Limit, Rate: &Rate{Rate: 5000, Bytes: true}},
			},
			Sets:     []Set{{Name: "bad"}, {Name: "web", Endpoints: true}},
			Services: []Service{{Addr: netip.MustParseAddrPort("192.0.2.1:80"), Forwarded: true}},
		},
		entries: map[string]int{"bad": 7},
		Counters: Counters{
			Short: Traffic{Packets: 1}, Malformed: Traffic{Packets: 2}, Rules: []RuleCount{
				{Name: "noicmp", Matched: Traffic{Packets: 1, Bytes: 98}},
				{Name: "dns", Matched: Traffic{Packets: 10, Bytes: 640}, Over: Traffic{Packets: 3}}, {Name: "bulk"},
			},
		},
	}
	if got, err := gather(c, nil); err != nil || got != want {
		t.Errorf("got\n%s%v, want\n%s", got, err, want)
	}
	if _, err := gather(nil, errors.New("gone")); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("error is %v", err)
	}
}
