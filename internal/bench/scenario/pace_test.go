// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/bench/load"
)

func TestShortfall(t *testing.T) {
	for _, tc := range []struct {
		asked, reached float64
		want           string
	}{
		{0, 1e6, ""}, {2e6, 2e6, ""}, {2e6, 1.97e6, ""}, {2e6, 1.62e6, "asked for 2.00 Mpps, the generator reached 1.62"},
	} {
		if got := load.Shortfall(tc.asked, tc.reached); got != tc.want {
			t.Errorf("asked for %v, reached %v: %q, want %q", tc.asked, tc.reached, got, tc.want)
		}
	}
}

// If the generator misses the rate, a row that is about exactly that rate is invalid. Any other row only notes it.
func TestReportOfShortfall(t *testing.T) {
	for _, tc := range []struct {
		name         string
		asked        float64
		exact        bool
		valid, noted bool
	}{
		{"misses a rate", 1.5e6, false, true, true},
		{"misses an exact rate", 1.5e6, true, false, true},
		{"reaches an exact rate", 1e6, true, true, false},
	} {
		var log []string
		sample := Sample{Sent: 1000, Received: 1000, Elapsed: time.Millisecond, Asked: tc.asked, Exact: tc.exact, Note: "paced"}
		row := RateReport([]Row{&fakeRow{name: "row", log: &log}}, [][]Sample{{sample}}, nil).Rows[0]
		if noted := strings.Contains(row.Note, "the generator reached 1.00"); row.Valid != tc.valid || noted != tc.noted ||
			!strings.HasPrefix(row.Note, "paced") {
			t.Errorf("%s: row %+v, want valid %t, noted %t", tc.name, row, tc.valid, tc.noted)
		}
	}
}

func TestAround(t *testing.T) {
	near := func(a, b []float64) bool {
		return slices.EqualFunc(a, b, func(x, y float64) bool { return x-y < 0.01 && y-x < 0.01 })
	}
	for _, tc := range []struct {
		best, limit float64
		want        []float64
	}{
		{0, 10, []float64{0, 8.94}}, {4, 10, []float64{3.58, 4, 4.47}}, {9.5, 10, []float64{8.50, 9.5, 0}},
	} {
		if got := around(tc.best, tc.limit); !near(got, tc.want) {
			t.Errorf("best %v of %v: %v, want %v", tc.best, tc.limit, got, tc.want)
		}
	}
}
