// SPDX-License-Identifier: Apache-2.0

package peer

import "testing"

func TestDroppedByReference(t *testing.T) {
	tests := []struct {
		line    string
		reason  string
		packets uint64
		ok      bool
	}{
		{`router_dropped_pkts_total{interface="1",isd_as="1-ff00:0:1",reason="busy processor",sizeclass="128"} 1.2e+06`, "busy_processor", 1200000, true},
		{"router_dropped_pkts_total{reason=\"invalid\"} 7\n", "invalid", 7, true},
		{`router_input_pkts_total{interface="1"} 7`, "", 0, false},
		{`# TYPE router_dropped_pkts_total counter`, "", 0, false},
		{`router_dropped_pkts_total{reason="invalid"} many`, "invalid", 0, false},
	}
	for _, tc := range tests {
		reason, packets, ok := droppedByReference(tc.line)
		if reason != tc.reason || packets != tc.packets || ok != tc.ok {
			t.Errorf("%s: %q %d %v", tc.line, reason, packets, ok)
		}
	}
}

func TestUDPCounter(t *testing.T) {
	const text = "Ip: Forwarding InErrors\nIp: 1 99\nUdp: InDatagrams NoPorts InErrors\nUdp: 10 20 30\n" +
		"UdpLite: InDatagrams NoPorts InErrors\nUdpLite: 1 2 3\n"
	for name, want := range map[string]uint64{"InDatagrams": 10, "NoPorts": 20, "InErrors": 30, "SndbufErrors": 0} {
		if got := udpCounter(text, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	if got := udpCounter("Ip6InReceives 1\nUdp6NoPorts  \t4\nUdp6InErrors  \t5\n", "InErrors"); got != 5 {
		t.Errorf("InErrors over IPv6 is %d, want 5", got)
	}
	if got := udpCounter("", "InErrors"); got != 0 {
		t.Errorf("%d in no text", got)
	}
}
