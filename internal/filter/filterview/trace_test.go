// SPDX-License-Identifier: Apache-2.0

package filterview

import (
	"net/netip"
	"strings"
	"testing"

	"culvert/internal/capture/trace"
	"culvert/internal/filter/filterplane"
)

func TestTraceStep(t *testing.T) {
	e := &explainer{filter: filterplane.Filter{
		Rules: []filterplane.Rule{
			{Name: "seen", Action: filterplane.Count, Expr: "icmp"},
			{Name: "slow", Action: filterplane.Limit, Rate: &filterplane.Rate{Rate: 1000}, Expr: "udp"},
			{Name: "bad", Action: filterplane.Drop, Src: []filterplane.SetRef{{Set: "bad"}}},
			{Name: "good", Action: filterplane.Pass, Expr: "tcp"},
		},
		Services: []filterplane.Service{{Addr: netip.MustParseAddrPort("192.0.2.1:80")}},
	}}
	plain := &trace.Packet{}
	for _, tt := range []struct {
		name    string
		p       *trace.Packet
		v       filterplane.Verdict
		want    string // verdict and reason, "on" or "unsure"
		text    string
		lookups string
	}{
		{"no rule", plain, filterplane.Verdict{Action: filterplane.Pass}, "on", "goes on: none of 4 rules decides", ""},
		{
			"a counting rule", plain, filterplane.Verdict{Action: filterplane.Pass, Matched: []string{"seen"}}, "on",
			"goes on: none of 4 rules decides", "matches rule seen: count icmp",
		},
		{
			"a set", plain, filterplane.Verdict{Action: filterplane.Drop, Rule: "bad", Matched: []string{"seen", "bad"}}, "drop filter",
			"dropped by rule bad", "matches rule seen: count icmp|matches rule bad: drop --src @bad",
		},
		{
			"a rate", plain, filterplane.Verdict{Action: filterplane.Pass, Matched: []string{"slow"}}, "unsure",
			"goes on: none of 4 rules decides, unless it was over the rate of rule slow (filter-limit)", "matches rule slow: limit 1kpps udp",
		},
		{
			"a rate and a drop", plain, filterplane.Verdict{Action: filterplane.Drop, Rule: "bad", Matched: []string{"slow", "bad"}}, "drop filter",
			"dropped by rule bad", "matches rule slow: limit 1kpps udp|matches rule bad: drop --src @bad",
		},
		{
			"a protected service", &trace.Packet{Ports: true, Protocol: trace.TCP, Dst: netip.MustParseAddr("192.0.2.1"), DstPort: 80},
			filterplane.Verdict{Action: filterplane.Pass, Rule: "good", Matched: []string{"good"}}, "unsure", "goes on, by rule good, unless the protection of 192.0.2.1:80 takes it",
			"matches rule good: pass tcp --all|to the protected service 192.0.2.1:80: answered with a cookie if it is a SYN (filter-synack), " +
				"dropped without one of ours (filter-cookie), and goes on if it is of a connection",
		},
		{"before the rules", plain, filterplane.Verdict{Action: filterplane.Drop, Reason: "filter-tags"}, "drop filter-tags", "dropped before any rule sees it", ""},
		{
			"cut", &trace.Packet{Frame: trace.Frame{Data: make([]byte, 60), Length: 100}}, filterplane.Verdict{Action: filterplane.Pass, Short: true}, "on",
			"goes on: none of 4 rules decides",
			"ends before a byte that a rule reads; judged by 60 of 100 bytes: rules that read the rest, or lengths, may decide otherwise",
		},
	} {
		s := e.step(tt.p, tt.v)
		got := "on"
		switch {
		case s.Unsure:
			got = "unsure"
		case s.Reason != "":
			got = s.Words()
		}
		if lookups := strings.Join(s.Lookups, "|"); got != tt.want || s.Text != tt.text || lookups != tt.lookups {
			t.Errorf("%s:\ngot  %s, %s, %s\nwant %s, %s, %s", tt.name, got, s.Text, lookups, tt.want, tt.text, tt.lookups)
		}
	}
}
