// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/search"
	"culvert/internal/testbed"
)

// Every row has a rate, and every packet is accounted for.
func TestNDR(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	o := shortOptions(t)
	o.Sizes = []string{"60", load.IMIXWord}
	var progress bytes.Buffer
	o.Progress = &progress
	r := measureUntilAccounted(t, NDR(), o)
	names := map[string]report.Row{}
	for _, row := range r.Rows {
		names[row.Name] = row
		if row.NDR == nil || len(row.CPUs) != 2 || row.Received == 0 || strings.Contains(row.Note, "accounted") {
			t.Errorf("row %+v", row)
		}
		var lost uint64
		for _, n := range row.Lost {
			lost += n
		}
		if row.Sent != row.Received+lost {
			t.Errorf("%s: sent %d, received %d, lost %d", row.Name, row.Sent, row.Received, lost)
		}
	}
	for _, name := range []string{"bridge@60", "redirect@60", "culvert-cold@imix", "culvert-warm@imix", "reference@imix"} {
		if _, ok := names[name]; !ok || len(r.Rows) != 7 {
			t.Errorf("no row %s among %d", name, len(r.Rows))
		}
	}
	if names["bridge@60"].FrameSize != 60 || names["bridge@imix"].FrameSize != 0 {
		t.Errorf("rows %+v", r.Rows)
	}
	if _, ok := r.Ratios["culvert-cold@imix/redirect@imix"]; !ok {
		t.Errorf("ratios %v", r.Ratios)
	}
	if !strings.Contains(progress.String(), "7 of 7: reference@imix ") {
		t.Errorf("progress %q", &progress)
	}
}

// Interrupted searches leave nothing behind: in the middle of a trial, and between two rows.
func TestInterruptedSearchLeavesNothing(t *testing.T) {
	testbed.NeedRoot(t)
	for _, scenario := range []Scenario{NDR(), Latency()} {
		t.Run(scenario.Name, func(t *testing.T) {
			testbed.CheckLeftovers(t)
			o := shortOptions(t)
			o.Round = time.Second
			o.Rows = []string{"culvert-cold", "reference"}
			o.Sizes = []string{"150"}
			ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
			defer cancel()
			if _, err := scenario.Measure(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			ctx, cancel = context.WithCancel(context.Background())
			defer cancel()
			o.Round, o.Progress = 5*time.Millisecond, testbed.CancelOn{Prefix: "1 of 2", Cancel: cancel}
			if _, err := scenario.Measure(ctx, o); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// Rows and lengths are combined, and each is measured once.
func TestTrialRows(t *testing.T) {
	testbed.NeedRoot(t)
	chosen, err := NDR().Choose(nil)
	if err != nil {
		t.Fatal(err)
	}
	rows, _, err := trialRows(chosen, Options{Progress: io.Discard, Router: testRouter}, ndrRows, ndrSizes)
	if err != nil || len(rows) != len(ndrRows)*len(ndrSizes) {
		t.Fatalf("%d rows, error %v", len(rows), err)
	}
	// Rows with SCION packets are left out where frames are too short for them. Other rows remain.
	var progress bytes.Buffer
	o := Options{Rows: []string{"direct", "culvert-cold"}, Sizes: []string{"60", "min", "200", "200"}, Progress: &progress}
	if chosen, err = NDR().Choose(o.Rows); err != nil {
		t.Fatal(err)
	}
	if rows, _, err = trialRows(chosen, o, ndrRows, ndrSizes); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range rows {
		names = append(names, row.String())
	}
	if got, want := strings.Join(names, " "), "direct@60 direct@134 culvert-cold@134 direct@200 culvert-cold@200"; got != want {
		t.Errorf("rows %q, want %q", got, want)
	}
	// A missing peer is reported as not measured. It is an error if its row was named.
	if chosen, err = NDR().Choose(nil); err != nil {
		t.Fatal(err)
	}
	none := Options{Router: "/nowhere/router", Sizes: []string{"138"}, Progress: io.Discard}
	rows, absent, err := trialRows(chosen, none, ndrRows, ndrSizes)
	if err != nil || len(rows) != len(ndrRows)-1 || len(absent) != 1 || absent[0].Name != "reference@138" || absent[0].Valid {
		t.Errorf("%d rows, absent %+v, error %v", len(rows), absent, err)
	}
	none.Rows = []string{"reference"}
	if chosen, err = NDR().Choose(none.Rows); err != nil {
		t.Fatal(err)
	}
	if _, _, err := trialRows(chosen, none, ndrRows, ndrSizes); err == nil || !strings.Contains(err.Error(), "culvert lab build") {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(progress.String(), "leaving culvert-cold@60 out: SCION packets take at least 134 bytes") {
		t.Errorf("progress %q", &progress)
	}
}

func TestUnknownSizes(t *testing.T) {
	for _, tc := range []struct {
		scenario Scenario
		size     string
	}{
		{NDR(), "20"}, {NDR(), "big"}, {NDR(), "1515"}, {Latency(), "big"}, {Latency(), "138"}, {Latency(), load.IMIXWord},
	} {
		_, err := tc.scenario.Measure(context.Background(), Options{Sizes: []string{tc.size}, Progress: io.Discard})
		if !errors.Is(err, load.ErrUnknown) && !errors.Is(err, ErrOption) {
			t.Errorf("%s with %s: error %v", tc.scenario.Name, tc.size, err)
		}
	}
	o := Options{Rows: []string{"culvert-cold"}, Sizes: []string{"60"}, Progress: io.Discard}
	if _, err := NDR().Measure(context.Background(), o); !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), "--size min") {
		t.Errorf("error %v", err)
	}
}

// The report marks rates that were not found, limits of the generator, and missing packets.
func TestNDRReport(t *testing.T) {
	regular := search.Outcome{Lower: 1e6, Upper: 1.02e6, Throughput: 0.99e6, Limit: search.DeviceLimit, Trials: 30}
	twice := regular
	twice.Lower, twice.Upper, twice.Throughput = 2e6, 2.02e6, 2e6
	limited := regular
	limited.Limit = search.GeneratorLimit
	irregular := search.Outcome{Upper: 1e3, Limit: search.DeviceLimit, Irregular: "no luck"}
	sum := Sample{Sent: 10, Received: 7, Lost: map[string]uint64{LostToDevice: 3, lostAtSink: 0}}
	tests := []struct {
		row    string
		result ndrResult
		ndr    report.Spread
		valid  bool
		note   string
	}{
		{
			"redirect", ndrResult{outcomes: []search.Outcome{regular, twice}, sum: sum, harness: 5},
			report.Spread{Median: 1.495, Min: 0.99, Max: 2}, true,
			"no loss when 1.000 Mpps were asked for, loss at 2.020; 60 trials; 5 packets lost behind",
		},
		{
			"direct", ndrResult{outcomes: []search.Outcome{limited, limited}},
			report.Spread{Median: 0.99, Min: 0.99, Max: 0.99}, true, "at least: more could not be offered; no loss when",
		},
		{
			"bridge", ndrResult{outcomes: []search.Outcome{regular, irregular}},
			report.Spread{Median: 0.495, Min: 0, Max: 0.99}, false, "invalid: irregular, no luck",
		},
		{
			"reference", ndrResult{outcomes: []search.Outcome{regular, regular}, missing: 3},
			report.Spread{Median: 0.99, Min: 0.99, Max: 0.99}, false, "invalid: 3 packets not accounted for",
		},
	}
	var rows []trialRow
	var results []ndrResult
	for _, tc := range tests {
		rows = append(rows, trialRow{Candidate: peer.Candidate{Name: tc.row}, length: 138})
		results = append(results, tc.result)
	}
	r := ndrReport(rows, results)
	for i, tc := range tests {
		got := r.Rows[i]
		if got.Name != tc.row+"@138" || *got.NDR != tc.ndr || got.Valid != tc.valid || !strings.HasPrefix(got.Note, tc.note) {
			t.Errorf("%s: row %+v with %+v, want %+v, valid %t, note %q", tc.row, got, *got.NDR, tc.ndr, tc.valid, tc.note)
		}
	}
	if lost := r.Rows[0].Lost; len(lost) != 1 || lost[LostToDevice] != 3 {
		t.Errorf("lost %v", lost)
	}
	if got := r.Ratios["direct@138/redirect@138"]; got != (1+0.99/2)/2 {
		t.Errorf("ratio %v", got)
	}
}
