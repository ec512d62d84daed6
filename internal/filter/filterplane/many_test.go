// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"fmt"
	"strings"
	"testing"

	"culvert/internal/filter/pcap"
	"culvert/internal/testbed"
)

// TestFilterManyRules loads a thousand rules of several kinds, also such that read far into a packet. They are in several
// functions, and the last rule decides. More rules than the verifier can walk through are refused.
func TestFilterManyRules(t *testing.T) {
	inst := filterBed(t, false)
	for name, c := range map[string]struct {
		rules int
		expr  string
	}{
		"port and net":   {1000, "udp port %d and net 192.0.2.0/24"},
		"port":           {1000, "port %d"},
		"deep":           {1000, "udp[%d:2] = 1 and greater %[1]d"},
		"tcp flags":      {1000, "tcp port %d and tcp[tcpflags] & tcp-syn != 0"},
		"fixed offset":   {1000, "ether[%d:2] = 77"},
		"most there are": {maxRules - 1, "ip6 and ether[20] = %d"},
	} {
		rules := make([]Rule, 0, c.rules+1)
		for k := range c.rules {
			code, err := pcap.Compile(fmt.Sprintf(c.expr, k%1000+1))
			if err != nil {
				t.Fatal(err)
			}
			rules = append(rules, Rule{Name: fmt.Sprint(k), Action: Count, Code: code})
		}
		rules = append(rules, Rule{Name: "last " + name, Action: Drop, Code: icmp})
		if err := Edit(inst, func(f *Filter) error { f.Rules = rules; return nil }); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if f, err := Read(inst); err != nil || len(f.Rules) != len(rules) {
			t.Errorf("%s: %d rules of %d, %v", name, len(f.Rules), len(rules), err)
		}
		for _, n := range []int{42, 59, 60, 1400} {
			wantRun(t, inst, protoFrame(1, n), "v0", testbed.XDPDrop)
			wantRun(t, inst, protoFrame(6, n), "v0", testbed.XDPPass)
		}
		counts, err := ReadCounters(inst)
		if err != nil {
			t.Fatal(err)
		}
		if last := counts.Rules[c.rules]; last.Matched.Packets != 4 {
			t.Errorf("%s: the last rule has counted %+v", name, last)
		}
	}
	// The error says what to do instead.
	var rules []Rule
	for k := range maxRules {
		code, err := pcap.Compile(fmt.Sprintf("tcp port %d and tcp[tcpflags] & tcp-syn != 0 and (udp port 1 or net 192.0.2.0/24 or port %[1]d)", k+1))
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, Rule{Name: fmt.Sprint(k), Action: Count, Code: code})
	}
	err := Edit(inst, func(f *Filter) error { f.Rules = rules; return nil })
	if err == nil || !strings.Contains(err.Error(), "sets") {
		t.Errorf("4096 long rules: %v", err)
	}
}
