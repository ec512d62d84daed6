// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/testbed"
)

// Rows have percentiles at three loads, of the packets that arrived.
func TestLatencyScenario(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	o := shortOptions(t)
	o.Rounds = 2
	r := measureUntilAccounted(t, Latency(), o)
	if len(r.Rows) != len(latencyRows) {
		t.Errorf("%d rows, want %d", len(r.Rows), len(latencyRows))
	}
	for _, row := range r.Rows {
		if strings.Contains(row.Note, "accounted") || row.NDR == nil || row.FrameSize != 150 {
			t.Errorf("row %+v", row)
		}
		// A machine that loses packets at any rate has no loads to measure, and its rows are invalid.
		if row.NDR.Median == 0 {
			if row.Valid {
				t.Errorf("row %+v", row)
			}
			continue
		}
		var packets uint64
		for i, l := range row.Latency {
			packets += l.Packets
			if l.Load != latencyLoads[i] || l.Offered <= 0 || l.P50 <= 0 || len(l.Curve) == 0 ||
				l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.P999 || l.P999 > l.Max {
				t.Errorf("%s: %+v", row.Name, l)
			}
		}
		if len(row.Latency) != len(latencyLoads) || packets != row.Received {
			t.Errorf("%s: %d loads with %d of %d packets", row.Name, len(row.Latency), packets, row.Received)
		}
	}
}

// measureUntilAccounted measures until every packet is accounted for, three times at most: on a busy machine some packets
// arrive only after the counters have been read.
func measureUntilAccounted(t *testing.T, s Scenario, o Options) (r *report.Report) {
	t.Helper()
	for range 3 {
		var err error
		if r, err = s.Measure(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		late := slices.IndexFunc(r.Rows, func(row report.Row) bool { return strings.Contains(row.Note, "accounted") })
		if late < 0 {
			break
		}
		t.Logf("%s: %s", r.Rows[late].Name, r.Rows[late].Note)
	}
	return r
}

// A row notes a rate that the generator missed, and packets that were lost or are missing.
func TestLatencyReport(t *testing.T) {
	histogram := load.Histogram{Buckets: make([]uint64, 8)}
	histogram.Buckets[5], histogram.Longest = 90, 5
	var sum load.Histogram
	sum.Add(histogram)
	histogram.Longest = 7
	sum.Add(histogram)
	if sum.Packets() != 180 || sum.Max() != 7 || sum.Quantile(0.5) != 5 || histogram.Buckets[5] != 90 {
		t.Errorf("sum %+v", sum)
	}
	const ndr = 10e6
	sent := make([]Sample, len(latencyLoads))
	for i, share := range latencyLoads {
		// The generator is 5 % too slow, which is within rateShortfall.
		sent[i] = Sample{Sent: 100, Received: 90, Elapsed: time.Duration(1e9 * 100 / (0.95 * share * ndr))}
	}
	good := latencyResult{ndr: ndr, delays: []load.Histogram{histogram, histogram, histogram}, sent: sent}
	for _, tc := range []struct {
		name   string
		change func(*latencyResult)
		valid  bool
		note   string
	}{
		{"good", func(*latencyResult) {}, true, "30 packets were lost"},
		{"missing", func(r *latencyResult) { r.missing = 2 }, false, "invalid: 2 packets not accounted for; 30"},
		{"slow", func(r *latencyResult) { r.ndr *= 1.06 }, false, "invalid: the generator sent 0.95"},
		{"no rate", func(r *latencyResult) { r.irregular = "why" }, false, "invalid: no rate without loss was found: why"},
	} {
		r := good
		tc.change(&r)
		row := r.row(trialRow{Candidate: peer.Candidate{Name: "redirect"}, length: 150})
		if row.Valid != tc.valid || !strings.HasPrefix(row.Note, tc.note) || row.Name != "redirect@150" {
			t.Errorf("%s: %+v", tc.name, row)
		}
		if len(row.Latency) != 3 || row.Latency[2].Load != 0.9 || math.Abs(row.Latency[2].Offered-8.55) > 0.01 || row.Latency[2].P50 != 5 {
			t.Errorf("%s: %+v", tc.name, row.Latency)
		}
	}
}
