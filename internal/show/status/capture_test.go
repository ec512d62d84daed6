// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// The line of a capture says who captures what, or that it was left over and what ends it.
func TestCaptureLine(t *testing.T) {
	for name, c := range map[string]struct {
		capture Capture
		served  bool
		want    string
		json    string
	}{
		"runs":              {Capture{PID: 7, Expression: "udp port 53"}, true, "  capture  by process 7: udp port 53", `{"pid":7,"expression":"udp port 53"}`},
		"all":               {Capture{PID: 7}, false, "  capture  by process 7: all packets", `{"pid":7,"expression":""}`},
		"out of sight":      {Capture{}, true, "  capture  by another process: all packets", `{"expression":""}`},
		"left, served":      {Capture{LeftOver: true, Expression: "arp"}, true, "  capture  LEFT OVER by a process that was killed: the process that serves is about to end it: arp", `{"expression":"arp","left_over":true}`},
		"left, no process ": {Capture{LeftOver: true}, false, "  capture  LEFT OVER by a process that was killed: end it with 'culvert capture -n 1': all packets", `{"expression":"","left_over":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := Router{ID: "r", Served: c.served, Here: true, Interfaces: []Interface{{}}, Capture: &c.capture}
			r.Interfaces[0].Attached = true
			if lines := strings.Join(r.text(time.Now(), "", false), "\n"); !strings.Contains(lines, c.want) {
				t.Errorf("status does not have %q:\n%s", c.want, lines)
			}
			if b, err := json.Marshal(c.capture); err != nil || string(b) != c.json {
				t.Errorf("JSON %s, %v: want %s", b, err, c.json)
			}
		})
	}
}
