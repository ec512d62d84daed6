// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"culvert/internal/bench/report"
	"culvert/internal/bench/search"
)

// Every row has a rate, and every packet is accounted for.
func TestNDR(t *testing.T) {
	needRoot(t)
	checkLeftovers(t)
	o := shortOptions(t)
	o.Sizes = []string{"60", imixWord}
	var progress bytes.Buffer
	o.Progress = &progress
	r, err := Run(context.Background(), "ndr", o)
	if err != nil {
		t.Fatal(err)
	}
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
	for _, name := range []string{"bridge@60", "redirect@60", "culvert-cold@134", "culvert-cold@imix", "reference@imix"} {
		if _, ok := names[name]; !ok || len(r.Rows) != 10 {
			t.Errorf("no row %s among %d", name, len(r.Rows))
		}
	}
	if row := names["culvert-warm@134"]; row.FrameSize != 134 || !strings.Contains(row.Note, "60 bytes asked for") {
		t.Errorf("row %+v", row)
	}
	if _, ok := r.Ratios["culvert-cold@imix/redirect@imix"]; !ok {
		t.Errorf("ratios %v", r.Ratios)
	}
	if !strings.Contains(progress.String(), "10 of 10: reference@imix, about ") {
		t.Errorf("progress %q", &progress)
	}
}

// An interruption comes in the middle of a search whose trials last for a second, and when the second row begins.
func TestInterruptedSearchLeavesNothing(t *testing.T) {
	needRoot(t)
	for _, scenario := range []string{"ndr", "latency"} {
		t.Run(scenario, func(t *testing.T) {
			checkLeftovers(t)
			o := shortOptions(t)
			o.Round = time.Second
			o.Rows = []string{"culvert-cold", "reference"}
			for _, when := range []string{"1 of 2", "2 of 2"} {
				ctx, cancel := context.WithCancel(context.Background())
				o.Progress = cancelOn{when, func() { time.AfterFunc(200*time.Millisecond, cancel) }}
				o.Sizes = []string{"150"}
				if when == "2 of 2" {
					o.Round = 5 * time.Millisecond
					o.Progress = cancelOn{when, cancel}
				}
				if _, err := Run(ctx, scenario, o); !errors.Is(err, context.Canceled) {
					t.Errorf("error %v", err)
				}
			}
		})
	}
}

// Rows and lengths are combined, and each is measured once.
func TestTrialRows(t *testing.T) {
	chosen, err := choose("ndr", nil)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := trialRows(chosen, Options{}, ndrRows, ndrSizes)
	if err != nil || len(rows) != len(ndrRows)*len(ndrSizes) {
		t.Fatalf("%d rows, error %v", len(rows), err)
	}
	// Two lengths that SCION packets cannot have make one row.
	o := Options{Rows: []string{"direct", "culvert-cold"}, Sizes: []string{"60", "124", "200"}}
	if chosen, err = choose("ndr", o.Rows); err != nil {
		t.Fatal(err)
	}
	if rows, err = trialRows(chosen, o, ndrRows, ndrSizes); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range rows {
		names = append(names, row.String())
	}
	if got, want := strings.Join(names, " "), "direct@60 culvert-cold@134 direct@124 direct@200 culvert-cold@200"; got != want {
		t.Errorf("rows %q, want %q", got, want)
	}
	if notes := rows[1].notes(); len(notes) != 1 || !strings.HasPrefix(notes[0], "60 and 124 bytes asked for") {
		t.Errorf("notes %q", notes)
	}
}

func TestUnknownSizes(t *testing.T) {
	for _, tc := range []struct{ scenario, size string }{
		{"ndr", "20"}, {"ndr", "big"}, {"ndr", "1515"}, {"latency", "big"}, {"latency", "138"}, {"latency", imixWord},
	} {
		_, err := Run(context.Background(), tc.scenario, Options{Sizes: []string{tc.size}, Progress: &bytes.Buffer{}})
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("%s with %s: error %v", tc.scenario, tc.size, err)
		}
	}
}

// The report tells rates that were found from those that were not.
func TestNDRReport(t *testing.T) {
	regular := search.Outcome{Lower: 1e6, Upper: 1.02e6, Throughput: 0.99e6, Limit: search.DeviceLimit, Trials: 30}
	twice := regular
	twice.Lower, twice.Upper, twice.Throughput = 2e6, 2.02e6, 2e6
	limited := regular
	limited.Limit = search.GeneratorLimit
	irregular := search.Outcome{Upper: 1e3, Limit: search.DeviceLimit, Irregular: "no luck"}
	row := func(name string) trialRow { return trialRow{candidate: candidate{name: name}, length: 138} }
	sum := Sample{Sent: 10, Received: 7, Lost: map[string]uint64{lostToDevice: 3, lostAtSink: 0}}
	rows := []trialRow{row("redirect"), row("direct"), row("bridge"), row("reference")}
	r := ndrReport(rows, []ndrResult{
		{outcomes: []search.Outcome{regular, twice}, sum: sum, harness: 5},
		{outcomes: []search.Outcome{limited, limited}},
		{outcomes: []search.Outcome{regular, irregular}},
		{outcomes: []search.Outcome{regular, regular}, missing: 3},
	})
	for i, want := range []struct {
		ndr   report.Spread
		valid bool
		note  string
	}{
		{report.Spread{Median: 1.495, Min: 0.99, Max: 2}, true, "bounds 1.000 and 2.020 Mpps, 60 trials; 5 packets lost behind"},
		{report.Spread{Median: 0.99, Min: 0.99, Max: 0.99}, true, "at least: more could not be offered; bounds"},
		{report.Spread{Median: 0.495, Min: 0, Max: 0.99}, false, "invalid: irregular, no luck"},
		{report.Spread{Median: 0.99, Min: 0.99, Max: 0.99}, false, "invalid: 3 packets not accounted for"},
	} {
		got := r.Rows[i]
		if *got.NDR != want.ndr || got.Valid != want.valid || !strings.HasPrefix(got.Note, want.note) {
			t.Errorf("row %+v with %+v, want %+v", got, *got.NDR, want)
		}
	}
	if lost := r.Rows[0].Lost; len(lost) != 1 || lost[lostToDevice] != 3 {
		t.Errorf("lost %v", lost)
	}
	if got := r.Ratios["direct@138/redirect@138"]; got != (1+0.99/2)/2 {
		t.Errorf("ratio %v", got)
	}
}
