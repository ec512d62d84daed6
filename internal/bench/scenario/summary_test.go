// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/report"
)

// sample is a sample of a millisecond with 1000 packets sent.
func sample(received, lost uint64) Sample {
	return Sample{Sent: 1000, Received: received, Lost: map[string]uint64{"queue": lost}, Elapsed: time.Millisecond}
}

// testReport has a row that is always half as fast as another, on a machine that slows down, and a row that loses a packet
// which nothing counts.
func testReport() *report.Report {
	var log []string
	rows := []Row{&fakeRow{name: "redirect", log: &log}, &fakeRow{name: "half", log: &log}, &fakeRow{name: "leaky", log: &log}}
	samples := [][]Sample{
		{sample(1000, 0), sample(400, 600), sample(200, 800)},
		{sample(500, 500), sample(200, 800), sample(100, 900)},
		{sample(1000, 0), sample(1000, 0), sample(999, 0)},
	}
	return RateReport(rows, samples, []string{"redirect", "absent"})
}

func TestRateReport(t *testing.T) {
	r := testReport()
	if got := r.Ratios; len(got) != 2 || got["half/redirect"] != 0.5 {
		t.Errorf("ratios %v", got)
	}
	if got := r.Rows[1].Offered; *got != report.NewSpread([]float64{1}) {
		t.Errorf("offered %+v, but 1000 packets were sent in each millisecond", got)
	}
	if got := r.Rows[0]; got.Mpps.Median != 0.4 || got.NsPerPacket.Median != 2500 || !got.Valid || got.Lost["queue"] != 1400 {
		t.Errorf("row %+v", got)
	}
	if got := r.Rows[2]; got.Valid || !strings.Contains(got.Note, "1 packets") {
		t.Errorf("a packet is missing, but row is %+v", got)
	}
}

func TestReportAsJSON(t *testing.T) {
	var b bytes.Buffer
	if err := testReport().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rows []struct {
			Name  string
			Mpps  struct{ Median, Min, Max float64 }
			Ns    struct{ Median float64 } `json:"ns_per_packet"`
			Valid *bool
		}
		Ratios  map[string]float64
		Machine map[string]any
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 3 || got.Machine == nil || got.Ratios["half/redirect"] != 0.5 {
		t.Fatalf("%s", b.Bytes())
	}
	half := got.Rows[1]
	if half.Name != "half" || half.Mpps.Median != 0.2 || half.Mpps.Min != 0.1 || half.Mpps.Max != 0.5 ||
		half.Ns.Median != 5000 || half.Valid == nil || !*half.Valid {
		t.Errorf("%+v", half)
	}
}

func TestReportAsTable(t *testing.T) {
	var b bytes.Buffer
	if err := testReport().WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for _, want := range []string{"| row ", "| ----", "| redirect ", "| half ", "| leaky "} {
		if !strings.HasPrefix(lines[0], want) {
			t.Fatalf("line %q does not begin with %q in\n%s", lines[0], want, &b)
		}
		if len(lines[0]) != len(b.String()[:strings.IndexByte(b.String(), '\n')]) {
			t.Errorf("columns are not aligned:\n%s", &b)
		}
		lines = lines[1:]
	}
	if !strings.Contains(b.String(), "\nleaky: invalid: 1 packets") {
		t.Errorf("no note of the missing packet in\n%s", &b)
	}
	b.Reset()
	cost := CostReport([]load.CostRow{{Name: "redirect", Frames: 7, Net: report.NewSpread([]float64{13, 12, 15}), Best: 11.5}})
	if err := cost.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"13.0", "12.0", "15.0", "11.5", "7 |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, &b)
		}
	}
}
