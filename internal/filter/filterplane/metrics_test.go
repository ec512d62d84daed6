// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"errors"
	"strings"
	"testing"

	"culvert/internal/testbed"
)

func TestFilterMetrics(t *testing.T) {
	gather := func(c *counts, err error) (string, error) {
		return testbed.Metrics(collector{func() (*counts, error) { return c, err }})
	}
	const want = `culvert_filter_malformed_packets_total 2
culvert_filter_rule_bytes_total rule=dns 640
culvert_filter_rule_bytes_total rule=noicmp 98
culvert_filter_rule_over_packets_total rule=dns 3
culvert_filter_rule_packets_total rule=dns 10
culvert_filter_rule_packets_total rule=noicmp 1
culvert_filter_short_packets_total 1
`
	c := &counts{limits: map[string]bool{"dns": true}, Counters: Counters{
		Short: Traffic{Packets: 1}, Malformed: Traffic{Packets: 2}, Rules: []RuleCount{
			{Name: "noicmp", Matched: Traffic{Packets: 1, Bytes: 98}},
			{Name: "dns", Matched: Traffic{Packets: 10, Bytes: 640}, Over: Traffic{Packets: 3}},
		},
	}}
	if got, err := gather(c, nil); err != nil || got != want {
		t.Errorf("got\n%s%v, want\n%s", got, err, want)
	}
	if got, err := gather(nil, nil); err != nil || got != "" {
		t.Errorf("without a filter: %s%v", got, err)
	}
	if _, err := gather(nil, errors.New("gone")); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("error is %v", err)
	}
}
