// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"testing"

	"culvert/internal/stats"
)

// TestLossWatch has counters of losses and of limits that move, stand still, and go with their interface.
func TestLossWatch(t *testing.T) {
	var w lossWatch
	look := func(ports []stats.Port, want ...string) {
		t.Helper()
		var got []string
		w.look(ports, func(text string, fields ...any) { got = append(got, text+fmt.Sprint(fields)) })
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	port := func(name string, lost, limited, over, dropped uint64) stats.Port {
		return stats.Port{Interface: name, Losses: map[string]uint64{"transmit": lost}, Reasons: []stats.Reason{
			{Name: "scion-ttl", Verdict: "punt", Limited: true, Packets: limited},
			{Name: "filter-limit", Verdict: "drop", Packets: over},
			{Name: "filter", Verdict: "drop", Packets: dropped},
		}}
	}
	look([]stats.Port{port("a", 7, 7, 7, 7)}) // what was before is no news
	look([]stats.Port{port("a", 7, 7, 7, 9)}) // what a rule drops is neither
	look([]stats.Port{port("a", 9, 8, 107, 9), port("b", 5, 0, 0, 0)},
		"packets are limited[interface a reason filter-limit packets 100]", "packets are limited[interface a reason scion-ttl packets 1]",
		"packets are lost[interface a loss transmit packets 2]")
	look([]stats.Port{port("a", 10, 8, 108, 9), port("b", 5, 0, 0, 0)}) // it goes on
	for range lossEnd - 1 {
		look([]stats.Port{port("a", 10, 8, 108, 9), port("b", 6, 0, 0, 0)}[:1])
	}
	look([]stats.Port{port("a", 10, 8, 108, 9)}, "packets are not limited any more[interface a reason scion-ttl]")
	look([]stats.Port{port("a", 11, 8, 108, 9)}, "packets are not limited any more[interface a reason filter-limit]")
	look([]stats.Port{port("b", 7, 0, 0, 0)}) // seen anew
	look([]stats.Port{port("b", 8, 0, 0, 0)}, "packets are lost[interface b loss transmit packets 1]")
	for range lossEnd - 2 {
		look(nil)
	}
	look(nil, "no more packets are lost[interface a loss transmit]") // its interface has gone
	look(nil)
	look(nil, "no more packets are lost[interface b loss transmit]")
	look(nil)
}
