// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// gather returns the metrics of a source, a line each.
func gather(s PortSource) (string, error) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(s))
	families, err := registry.Gather()
	var b strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			b.WriteString(f.GetName())
			for _, l := range m.GetLabel() {
				fmt.Fprintf(&b, " %s=%s", l.GetName(), l.GetValue())
			}
			fmt.Fprintf(&b, " %v\n", m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
	return b.String(), err
}

// Each verdict and reason of culvert_packets_total has exactly one culvert_reason_info, however many interfaces count it.
func TestReasonInfo(t *testing.T) {
	const want = `culvert_bytes_total interface=eth0 reason=scion-mac verdict=limited 100
culvert_bytes_total interface=eth0 reason=scion-mac verdict=punt 300
culvert_bytes_total interface=eth1 reason=other verdict=pass 64
culvert_bytes_total interface=eth1 reason=scion-mac verdict=punt 100
culvert_packets_total interface=eth0 reason=scion-mac verdict=limited 1
culvert_packets_total interface=eth0 reason=scion-mac verdict=punt 3
culvert_packets_total interface=eth1 reason=other verdict=pass 1
culvert_packets_total interface=eth1 reason=scion-mac verdict=punt 1
culvert_reason_info reason=other text=claimed by no stage verdict=pass 1
culvert_reason_info reason=scion-mac text=kept from the slow path by its limit: the MAC is wrong verdict=limited 1
culvert_reason_info reason=scion-mac text=the MAC is wrong verdict=punt 1
`
	mac := Reason{Name: "scion-mac", Verdict: "punt", Text: "the MAC is wrong", Packets: 3, Bytes: 300}
	limited, onEth1 := mac, mac
	limited.Limited, limited.Packets, limited.Bytes = true, 1, 100
	onEth1.Packets, onEth1.Bytes = 1, 100
	other := Reason{Name: "other", Verdict: "pass", Text: "claimed by no stage", Packets: 1, Bytes: 64}
	got, err := gather(portSource{ports: []Port{
		{Interface: "eth0", Reasons: []Reason{mac, limited}}, {Interface: "eth1", Reasons: []Reason{onEth1, other}},
	}})
	if err != nil || got != want {
		t.Errorf("got\n%s%v, want\n%s", got, err, want)
	}
}
