// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
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
	const want = `culvert_bytes_total interface=eth0 reason=scion-mac stage=scion verdict=limited 100
culvert_bytes_total interface=eth0 reason=scion-mac stage=scion verdict=punt 300
culvert_bytes_total interface=eth1 reason=other stage=core verdict=pass 64
culvert_bytes_total interface=eth1 reason=scion-mac stage=scion verdict=punt 100
culvert_packets_total interface=eth0 reason=scion-mac stage=scion verdict=limited 1
culvert_packets_total interface=eth0 reason=scion-mac stage=scion verdict=punt 3
culvert_packets_total interface=eth1 reason=other stage=core verdict=pass 1
culvert_packets_total interface=eth1 reason=scion-mac stage=scion verdict=punt 1
culvert_reason_info reason=other text=claimed by no stage verdict=pass 1
culvert_reason_info reason=scion-mac text=kept from the slow path by its limit: the MAC is wrong verdict=limited 1
culvert_reason_info reason=scion-mac text=the MAC is wrong verdict=punt 1
`
	mac := Reason{Name: "scion-mac", Stage: "scion", Verdict: "punt", Text: "the MAC is wrong", Packets: 3, Bytes: 300}
	limited, onEth1 := mac, mac
	limited.Limited, limited.Packets, limited.Bytes = true, 1, 100
	onEth1.Packets, onEth1.Bytes = 1, 100
	other := Reason{Name: "other", Stage: "core", Verdict: "pass", Text: "claimed by no stage", Packets: 1, Bytes: 64}
	got, err := gather(portSource{ports: []Port{
		{Interface: "eth0", Reasons: []Reason{mac, limited}}, {Interface: "eth1", Reasons: []Reason{onEth1, other}},
	}})
	if err != nil || got != want {
		t.Errorf("got\n%s%v, want\n%s", got, err, want)
	}
}

// A reload that was refused leaves the time of the configuration in force as it was.
func TestReload(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	r := NewReload()
	registry.MustRegister(r)
	at := func(ok bool, second int64) (values []float64) {
		r.Set(ok, time.Unix(second, 0))
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			values = append(values, f.GetMetric()[0].GetGauge().GetValue())
		}
		return values
	}
	for _, step := range []struct {
		ok     bool
		second int64
		want   []float64 // the time, and whether it was successful
	}{{true, 10, []float64{10, 1}}, {false, 20, []float64{10, 0}}, {true, 30, []float64{30, 1}}} {
		if got := at(step.ok, step.second); !slices.Equal(got, step.want) {
			t.Errorf("after %v at %d s: %v, want %v", step.ok, step.second, got, step.want)
		}
	}
}

// A state that the collector does not know is shown too, beside those that it does.
func TestSendState(t *testing.T) {
	desc := prometheus.NewDesc("culvert_state", "A state.", []string{"of", "state"}, nil)
	for _, c := range []struct {
		present string
		want    string
	}{{"up", "down=0 up=1"}, {"lost", "down=0 up=0 lost=1"}} {
		ch := make(chan prometheus.Metric, 10)
		SendState(ch, desc, c.present, []string{"down", "up"}, "x")
		close(ch)
		var got []string
		for m := range ch {
			var out dto.Metric
			if err := m.Write(&out); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s=%v", out.GetLabel()[1].GetValue(), out.GetGauge().GetValue()))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %v, want %s", c.present, got, c.want)
		}
	}
}
