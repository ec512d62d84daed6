// SPDX-License-Identifier: Apache-2.0

package report

import (
	"maps"
	"strings"
	"testing"
)

// connectionsSample is a report of connections in which haproxy is faster than usual by a factor.
func connectionsSample(factor float64) *Report {
	r := &Report{Scenario: "lb", Machine: testMachine, Ratios: map[string]float64{"haproxy@tcp/direct@tcp": 0.5}}
	for name, usual := range map[string]float64{"direct@tcp": 5000, "haproxy@tcp": 2500 * factor} {
		rates, speeds := make([]float64, minRounds+2), make([]float64, minRounds+2)
		for n := range rates {
			rates[n], speeds[n] = usual*phases(n, 0)*(1+float64(n)/1000), 10*phases(n, 0)*(1+float64(n)/1000)
		}
		r.Rows = append(r.Rows, Row{
			Name: name, Valid: true,
			Connections: &Connections{Rate: NewSpread(rates), Speed: NewSpread(speeds), Clients: 16, Streams: 8},
			Samples:     map[string][]float64{"connections_per_second": rates, "gbit_per_second": speeds},
		})
	}
	return r
}

func TestTableOfConnections(t *testing.T) {
	text := table(t, connectionsSample(1))
	found := tables(t, text)
	if len(found) != 1 || !strings.Contains(text, "Connections of TCP clients") {
		t.Fatalf("tables in\n%s", text)
	}
	for _, row := range found[0][1:] {
		if row[0] != "haproxy@tcp" {
			continue
		}
		if row[1] != "2500" || row[3] != "2507" || row[len(row)-1] != "0.50" {
			t.Errorf("row %q in\n%s", row, text)
		}
		return
	}
	t.Errorf("no row haproxy@tcp in\n%s", text)
}

// Connections are compared as ratios to those without a balancer.
func TestCompareConnections(t *testing.T) {
	for _, tc := range []struct {
		factor float64
		want   Verdict
	}{{1, Same}, {1.2, Faster}, {0.8, Slower}} {
		verdicts := map[string]Verdict{}
		for _, change := range compare(t, connectionsSample(1), connectionsSample(tc.factor)).Changes {
			verdicts[change.Row+" "+change.Figure] = change.Verdict
		}
		want := map[string]Verdict{
			"direct@tcp connections/s": Base, "direct@tcp Gbit/s": Base,
			"haproxy@tcp connections/s x direct": tc.want, "haproxy@tcp Gbit/s x direct": Same,
		}
		if !maps.Equal(verdicts, want) {
			t.Errorf("%v: %v, want %v", tc.factor, verdicts, want)
		}
	}
}
