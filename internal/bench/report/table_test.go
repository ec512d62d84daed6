// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func table(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// tables parses text into its tables of cells. It checks that the lines of each table are equally long.
func tables(t *testing.T, text string) [][][]string {
	t.Helper()
	var all [][][]string
	inside := false
	width := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		if !inside {
			all, inside, width = append(all, nil), true, utf8.RuneCountInString(line)
		}
		if utf8.RuneCountInString(line) != width {
			t.Errorf("line %q is not aligned in\n%s", line, text)
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		all[len(all)-1] = append(all[len(all)-1], cells)
	}
	return all
}

// Each kind of report has exactly the columns that it has figures for.
func TestTableColumns(t *testing.T) {
	for _, tc := range []struct {
		report *Report
		heads  []string
		rows   []int
	}{
		{
			vethSample(), []string{
				"row|Mpps|min|max|ns/packet|x bridge|x redirect|offered|lost",
				"row|Mpps|min|max|ns/packet|x bridge|x redirect|offered|lost",
			}, []int{8, 8},
		},
		{costSample(), []string{"row|ns/packet|min|max|best|frames"}, []int{3}},
		{instructionSample(), []string{"row|instructions"}, []int{4}},
		{
			workersSample(), []string{
				"row|workers|Mpps|min|max|ns/packet|x culvert-cold@workers0|CPU 0|CPU 1|reordered|missing|duplicates",
			}, []int{6},
		},
		{ndrSample(), []string{"bytes|bridge|redirect|culvert-cold|reference"}, []int{8}},
		{latencySample(), []string{"row|load|offered Mpps|packets|p50|p90|p99|p99.9|max"}, []int{18}},
	} {
		text := table(t, tc.report)
		got := tables(t, text)
		if len(got) != len(tc.heads) {
			t.Fatalf("%s: %d tables, want %d, in\n%s", tc.report.Scenario, len(got), len(tc.heads), text)
		}
		for i, lines := range got {
			if head := strings.Join(lines[0], "|"); head != tc.heads[i] {
				t.Errorf("%s: head %q, want %q", tc.report.Scenario, head, tc.heads[i])
			}
			// Two lines are the head and the delimiter row.
			if len(lines)-2 != tc.rows[i] {
				t.Errorf("%s: %d rows, want %d", tc.report.Scenario, len(lines)-2, tc.rows[i])
			}
		}
		if !strings.HasSuffix(text, tc.report.Machine.String()+"\n") {
			t.Errorf("%s does not end with the machine:\n%s", tc.report.Scenario, text)
		}
	}
}

func TestTableCells(t *testing.T) {
	for _, tc := range []struct {
		report *Report
		want   []string
	}{
		{vethSample(), []string{
			"138-byte frames\n\n| row", "512-byte frames\n\n| row", "| culvert+reference (invalid) |", "50.00 %",
			"\nreference, reference@512: generator on CPU 0\n", "\nculvert+reference: 7 packets not accounted for\n",
		}},
		{workersSample(), []string{"2468 |", "80 %", "2.29 |"}},
		{ndrSample(), []string{"|  IMIX | 0.700", "(2.507-2.611) (invalid) |", "\nculvert-cold@128: invalid\n"}},
		{latencySample(), []string{"Latency in µs", "| bridge (invalid) | 90 % |", "34.2 | 51.3 |  137 |  1026 | 6840 |"}},
		{costSample(), []string{"-22.0"}},
	} {
		text := table(t, tc.report)
		for _, want := range tc.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", tc.report.Scenario, want, text)
			}
		}
	}
}

// The frame lengths of the table of no drop rates ascend, with a mix last.
func TestSizesAscend(t *testing.T) {
	sizes, series := pivot(ndrSample().Rows)
	if got := strings.Join(sizes, " "); got != "64 128 256 512 1024 1280 1518 IMIX" {
		t.Errorf("sizes %s", got)
	}
	if len(series) != 4 || series[0].rows["64"].Name != "bridge@64" {
		t.Errorf("series %+v", series)
	}
	if got := withoutSize("culvert-cold@512@2cpu"); got != "culvert-cold@2cpu" {
		t.Errorf("without its size it is %q", got)
	}
}

// A row without figures and note is in the table, and special characters in names and notes do not break it.
func TestTableOfSpecialRows(t *testing.T) {
	r := &Report{Scenario: "odd", Rows: []Row{{Name: "a|b", Valid: true}, {Name: "ß", Note: "two\nlines"}}}
	text := table(t, r)
	if got := tables(t, text); len(got) != 1 || len(got[0]) != 4 || got[0][2][0] != "a/b" || got[0][3][0] != "ß (invalid)" {
		t.Errorf("%q", got)
	}
	if !strings.Contains(text, "ß: two lines\n") {
		t.Errorf("the note is not on one line:\n%s", text)
	}
}

func TestHeadings(t *testing.T) {
	for variant, want := range map[string]string{
		"": "138-byte frames", "512": "512-byte frames", "2cpu": "138-byte frames, 2 CPUs", "imix": "IMIX",
		"512@2cpu": "512-byte frames, 2 CPUs", "workers2": "138-byte frames, workers2", "min": "138-byte frames, the shortest", "veth": "138-byte frames, veth",
	} {
		g := group{variant: variant, rows: []Row{{FrameSize: 138}}}
		if got := g.heading(); got != want {
			t.Errorf("heading of %q is %q, want %q", variant, got, want)
		}
	}
}
