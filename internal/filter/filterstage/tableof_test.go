// SPDX-License-Identifier: Apache-2.0

package filterstage

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"culvert/internal/filter"
)

// TestRuleTableOf compiles the table of each rule again, and wants the same rule.
func TestRuleTableOf(t *testing.T) {
	text := func(s string) *string { return &s }
	specs := []filter.Spec{
		{Action: "drop", Expression: text("tcp and ether[0] = 1 and ether proto \\arp")},
		{Action: "count", Expression: text("2\n40 0 0 12\n6 0 0 7\n")},
		{Action: "drop", Expression: text("1\n6 0 0 7\n"), All: true},
		{Action: "pass", All: true, Interfaces: []string{"eth0", "a'b\"\\c"}},
		{Action: "drop", Src: []string{"@a", "!@b"}, Dst: []string{"!@c"}},
	}
	for _, rate := range []string{"1pps", "999pps", "1001pps", "1234567pps", "1000000pps", "1B/s", "1999B/s", "1.001kB/s", "123456789B/s", "8bit/s", "1Gbit/s"} {
		for _, per := range []string{"", "src", "dst/24", "src/64", "dst/24,48", "src/32,20", "dst/20,128"} {
			s := filter.Spec{Action: "limit", Rate: rate, Per: per}
			specs = append(specs, s)
			if s.Burst = "1777"; rate != "1pps" {
				specs = append(specs, s)
			}
			if per != "" {
				s.Entries = 4321
				s.Burst = ""
				specs = append(specs, s)
			}
		}
	}
	made := 0
	for n, s := range specs {
		s.Name = fmt.Sprintf("r%d", n)
		rule, err := s.Rule()
		if err != nil { // a burst that is too large for the rate
			if s.Burst == "" {
				t.Errorf("%+v: %v", s, err)
			}
			continue
		}
		made++
		file, err := toml.Marshal(RuleTableOf(rule))
		if err != nil {
			t.Fatal(err)
		}
		var table RuleTable
		if err := toml.Unmarshal(file, &table); err != nil {
			t.Fatalf("%v in\n%s", err, file)
		}
		again, err := compileRule(table)
		again.File = false
		if err != nil || !reflect.DeepEqual(again, rule) {
			t.Errorf("error %v from\n%sgot %+v, want %+v", err, file, again, rule)
		}
	}
	if made < 150 {
		t.Errorf("%d rules only", made)
	}
}
