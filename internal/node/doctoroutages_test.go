// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"

	"culvert/internal/sflow/sflowplane"
)

// TestSFlowOutage wants the command that shows more: who listens, if the collector refuses, and otherwise the way to it.
func TestSFlowOutage(t *testing.T) {
	for _, c := range []struct {
		collector, why, what, command string
		unread                        bool
	}{
		{"192.0.2.1:6343", "connection refused", "gets nothing: connection refused: nobody listens at this port there", "ss -lunp 'sport = :6343'    # on the collector", false},
		{"[2001:db8::1]:99", "write udp: connection refused", "nobody listens", "ss -lunp 'sport = :99'    # on the collector", false},
		{"192.0.2.1:6343", "network is unreachable", "192.0.2.1:6343, gets nothing: network is unreachable", "ip route get 192.0.2.1", false},
		{"flows.example.net:6343", "no such host", "gets nothing: no such host", "getent ahosts flows.example.net", false},
		{"192.0.2.1:6343", "the samples cannot be read: file already closed", "gets nothing: the samples", "systemctl restart culvert    # packets flow on meanwhile", true},
	} {
		p := &sflowplane.Process{Collector: c.collector, Error: c.why, Unread: c.unread}
		if o := sflowOutage("edge", p); o.Router != "edge" || o.Check != "sflow" || !o.Works || !strings.Contains(o.What, c.what) || o.Command != c.command {
			t.Errorf("%s, %s: %+v", c.collector, c.why, o)
		}
	}
}
