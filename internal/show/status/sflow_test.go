// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"culvert/internal/sflow/sflowplane"
)

// The line of sFlow says who gets the samples, and what does not work.
func TestSFlowLine(t *testing.T) {
	ok := &sflowplane.Process{Collector: "192.0.2.1:6343", Agent: "192.0.2.2"}
	bad := &sflowplane.Process{Collector: "192.0.2.1:6343", Error: "connection refused"}
	for name, c := range map[string]struct {
		sflow  SFlow
		served bool
		want   string
	}{
		"well":       {SFlow{Rate: 1000, Sampled: 12345, Process: ok}, true, "  sflow  1 in 1,000: 12,345 sampled  to 192.0.2.1:6343 as 192.0.2.2"},
		"lost":       {SFlow{Rate: 1, Sampled: 10, Lost: 3, Process: ok}, true, "  sflow  1 in 1: 10 sampled, 3 LOST  to 192.0.2.1:6343 as 192.0.2.2"},
		"refused":    {SFlow{Rate: 1, Process: bad}, true, "  sflow  1 in 1: 0 sampled  collector 192.0.2.1:6343 GETS NOTHING: connection refused"},
		"not known":  {SFlow{Rate: 1}, true, "  sflow  1 in 1: 0 sampled"},
		"no process": {SFlow{Rate: 1, Lost: 7}, false, "  sflow  1 in 1: 0 sampled, 7 LOST  NO PROCESS sends them: start it with 'culvert run'"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Router{ID: "r", Served: c.served, Here: true, Interfaces: []Interface{{}}, SFlow: &c.sflow}
			r.Interfaces[0].Attached = true
			if lines := strings.Join(r.text(time.Now(), "", false), "\n") + "\n"; !strings.Contains(lines, c.want+"\n") {
				t.Errorf("status does not have %q:\n%s", c.want, lines)
			}
		})
	}
	b, err := json.Marshal(SFlow{Rate: 2, Drops: 3, Sampled: 4, Process: ok})
	want := `{"rate":2,"drops":3,"sampled_packets":4,"lost_samples":0,"process":{"collector":"192.0.2.1:6343","agent":"192.0.2.2"}}`
	if err != nil || string(b) != want {
		t.Errorf("JSON %s, %v: want %s", b, err, want)
	}
}
