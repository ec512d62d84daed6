// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"strings"
	"testing"
)

func TestTableOfFloods(t *testing.T) {
	var b bytes.Buffer
	if err := floodSample().WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| asked Mpps | offered |", "nft-netdev@tcp (invalid)", "| 20000 (19000-21000) | 100.0 %", "|       most |    4.00 |",
		"|    4000 (3800-4200) |  20.0 %",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	// Rows with floods have no rates.
	if strings.Contains(b.String(), "Mpps |   min") {
		t.Errorf("a table of rates in\n%s", &b)
	}
}

func TestTableOfFilters(t *testing.T) {
	r := &Report{
		Scenario: "filter", Machine: testMachine,
		SoftRatios: map[string]Spread{"culvert@drop/iptables-raw@drop": {5.25, 5, 6}},
		Ratios:     map[string]float64{"culvert@drop/iptables-raw@drop": 3},
	}
	for name, ns := range map[string]float64{"culvert@drop": 70, "iptables-raw@drop": 350} {
		r.Rows = append(r.Rows, Row{
			Name: name, Mpps: &Spread{1, 1, 1}, Valid: true,
			Filter: &Filter{Rules: 1, Set: 10, Install: 0.25, SoftShare: &Spread{0.3, 0.3, 0.3}, SoftNs: &Spread{ns, ns, ns}},
		})
	}
	var b bytes.Buffer
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| soft ns |", "| 30 % |", "|     350 |", "| loaded in s |", "|        0.25 |", "| soft x iptables-raw |", "|                5.25 |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}
