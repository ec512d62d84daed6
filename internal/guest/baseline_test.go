// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario/insn"
)

// counts makes the counts of one kernel from instructions by row, such as "cost/redirect".
func counts(line, version string, rows map[string]float64) Counts {
	c := Counts{Line: line, Release: line + "-test", Package: version}
	for name, n := range rows {
		kind, row, _ := strings.Cut(name, "/")
		r := report.Row{Name: row, Instructions: &n, Valid: true}
		if kind == "cost" {
			c.Cost = append(c.Cost, r)
		} else {
			c.Path = append(c.Path, r)
		}
	}
	return c
}

func TestCompare(t *testing.T) {
	was := []Counts{
		counts("6.1", "6.1.1-1", map[string]float64{"cost/redirect": 100, "path/redirect": 1000}),
		counts("6.12", "6.12.1-1", map[string]float64{"cost/redirect": 100}),
	}
	same := was[1]
	for _, tt := range []struct {
		name          string
		now           []Counts
		was           Counts // replaces the baseline of 6.1, if set
		lines, rows   []string
		notes, faults []string
	}{
		{name: "same", now: was},
		{
			name: "2 % more",
			now:  []Counts{counts("6.1", "6.1.1-1", map[string]float64{"cost/redirect": 102, "path/redirect": 1020}), same},
		},
		{
			name:   "over 2 % more",
			now:    []Counts{counts("6.1", "6.1.1-1", map[string]float64{"cost/redirect": 100, "path/redirect": 1020.01}), same},
			faults: []string{"Linux 6.1: path/redirect takes 1020.01 instructions, by the baseline 1000.00: +2.00 %"},
		},
		{
			name: "less than an instruction more in a short row",
			now:  []Counts{counts("6.1", "6.1.1-1", map[string]float64{"cost/redirect": 24.4}), same},
			was:  counts("6.1", "6.1.1-1", map[string]float64{"cost/redirect": 23.7}),
		},
		{
			name:   "more than an instruction more in a short row",
			now:    []Counts{counts("6.1", "6.1.1-1", map[string]float64{"cost/redirect": 24.8}), same},
			was:    counts("6.1", "6.1.1-1", map[string]float64{"cost/redirect": 23.7}),
			faults: []string{"Linux 6.1: cost/redirect takes 24.80 instructions, by the baseline 23.70: +4.64 %"},
		},
		{
			name: "a row of the kernel alone",
			now: []Counts{counts("6.1", "6.1.1-1", map[string]float64{
				"cost/redirect": 100, "path/redirect": 1000, "path/bridge": 515,
			}), same},
			was:   counts("6.1", "6.1.1-1", map[string]float64{"cost/redirect": 100, "path/redirect": 1000, "path/bridge": 500}),
			notes: []string{"Linux 6.1: path/bridge takes 515.00 instructions, by the baseline 500.00: +3.00 %: only the kernel runs in this row"},
		},
		{
			name: "a row that asks the kernel, whose answer takes longer",
			now:  []Counts{counts("6.1", "6.1.1-1", map[string]float64{"path/fib6": 540, "path/route-fib6": 1050}), same},
			was:  counts("6.1", "6.1.1-1", map[string]float64{"path/fib6": 500, "path/route-fib6": 1000}),
			notes: []string{
				"path/fib6 takes 540.00 instructions, by the baseline 500.00: +8.00 %: only the kernel runs in this row",
				"path/route-fib6 takes 1050.00 instructions, by the baseline 1000.00: +5.00 %: of that 40.00 are the kernel's, by row path/fib6",
			},
		},
		{
			name:   "a row that asks the kernel, and takes longer itself",
			now:    []Counts{counts("6.1", "6.1.1-1", map[string]float64{"path/fib6": 510, "path/route-fib6": 1031}), same},
			was:    counts("6.1", "6.1.1-1", map[string]float64{"path/fib6": 500, "path/route-fib6": 1000}),
			faults: []string{"path/route-fib6 takes 1031.00 instructions, by the baseline 1000.00: +3.10 %"},
		},
		{
			name:   "a row that asks the kernel, whose answer takes less than before",
			now:    []Counts{counts("6.1", "6.1.1-1", map[string]float64{"path/fib6": 495, "path/route-fib6": 1021}), same},
			was:    counts("6.1", "6.1.1-1", map[string]float64{"path/fib6": 500, "path/route-fib6": 1000}),
			faults: []string{"path/route-fib6 takes 1021.00 instructions, by the baseline 1000.00: +2.10 %"},
		},
		{
			name:  "over 2 % less",
			now:   []Counts{counts("6.1", "6.1.1-1", map[string]float64{"cost/redirect": 97, "path/redirect": 1000}), same},
			notes: []string{"cost/redirect takes 97.00 instructions, by the baseline 100.00: -3.00 %, so write a new baseline"},
		},
		{
			name:   "another kernel, and a row that is over",
			now:    []Counts{was[0], counts("6.12", "6.12.2-1", map[string]float64{"cost/redirect": 110})},
			notes:  []string{"Linux 6.12 is 6.12.2-1 here, and was 6.12.1-1 for the baseline"},
			faults: []string{"Linux 6.12: cost/redirect takes 110.00"},
		},
		{
			name:   "a row gone and one new",
			now:    []Counts{counts("6.1", "6.1.1-1", map[string]float64{"cost/redirect": 100, "path/new": 7}), same},
			faults: []string{"path/new takes 7.00 instructions and has no baseline", "row path/redirect of the baseline was not counted"},
		},
		{
			name: "one row asked for",
			now:  []Counts{counts("6.1", "6.1.1-1", map[string]float64{"cost/redirect": 100})},
			rows: []string{"cost/redirect"}, lines: []string{"6.1"},
		},
		{name: "a kernel gone", now: was[:1], faults: []string{"Linux 6.12 of the baseline was not counted"}},
		{
			name:   "a kernel new",
			now:    []Counts{was[0], same, counts("6.18", "6.18.1-1", map[string]float64{"cost/redirect": 100})},
			faults: []string{"Linux 6.18 has no baseline"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			was := was
			if tt.was.Line != "" {
				was = []Counts{tt.was, was[1]}
			}
			c := Compare(was, tt.now, tt.lines, tt.rows)
			matches := func(got, want []string) bool {
				return slices.EqualFunc(got, want, strings.Contains)
			}
			if !matches(c.Notes, tt.notes) || !matches(c.Faults, tt.faults) {
				t.Errorf("notes %q, faults %q; want %q and %q", c.Notes, c.Faults, tt.notes, tt.faults)
			}
			if err := c.Err(); (err != nil) != (len(tt.faults) > 0) {
				t.Errorf("error %v with %d faults", err, len(tt.faults))
			}
		})
	}
}

func TestBaselineFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "b.json")
	was := []Counts{counts("6.1", "6.1.1-1", map[string]float64{"cost/redirect": 12.34, "path/redirect": 1000})}
	if err := WriteBaseline(name, was); err != nil {
		t.Fatal(err)
	}
	now, err := ReadBaseline(name)
	if err != nil {
		t.Fatal(err)
	}
	if c := Compare(was, now, nil, nil); len(c.Faults)+len(c.Notes) > 0 || now[0].Package != "6.1.1-1" {
		t.Errorf("read %+v: %+v", now, c)
	}
	if left, _ := os.ReadDir(filepath.Dir(name)); len(left) != 1 {
		t.Errorf("left beside the file: %v", left)
	}
	if err := os.WriteFile(name, []byte("[{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadBaseline(name); err == nil || !strings.Contains(err.Error(), "write it again") {
		t.Errorf("half a baseline gives error %v", err)
	}
}

// The baseline that is committed has each row of each kernel.
func TestCommittedBaseline(t *testing.T) {
	all, err := ReadBaseline("testdata/baseline.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range Lines {
		c := find(all, line)
		if c == nil {
			t.Errorf("no baseline for Linux %s", line)
			continue
		}
		if !strings.HasSuffix(c.Release, "-amd64") || c.Package == "" {
			t.Errorf("the baseline for Linux %s does not say of which kernel it is", line)
		}
		for _, row := range insn.Rows() {
			if c.byName()[row] <= 0 {
				t.Errorf("the baseline for Linux %s has no row %s", line, row)
			}
		}
	}
}

// That of arm64 is of 6.12 alone, and has the rows that the Makefile asks for.
func TestCommittedBaselineOfARM64(t *testing.T) {
	all, err := ReadBaseline("testdata/baseline-arm64.json")
	if err != nil {
		t.Fatal(err)
	}
	c := find(all, "6.12")
	if len(all) != 1 || c == nil || !strings.HasSuffix(c.Release, "-arm64") {
		t.Fatalf("the baseline is of %+v", all)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(makefile), "INSN_ARM64 = --arch arm64 --kernel 6.12 --rows ")
	rows, _, _ = strings.Cut(rows, "\n")
	for row := range strings.SplitSeq(rows, ",") {
		if c.byName()[row] <= 0 {
			t.Errorf("the baseline has no row %q", row)
		}
	}
	if n := len(strings.Split(rows, ",")); n != len(c.byName()) {
		t.Errorf("%d rows are counted, and %d in the baseline", n, len(c.byName()))
	}
}

func TestTable(t *testing.T) {
	was := []Counts{counts("6.1", "6.1.1-1", map[string]float64{"cost/redirect": 10, "path/direct": 900, "path/redirect": 1200, "path/worker-route4": 700})}
	now := []Counts{counts("6.1", "6.1.2-1", map[string]float64{"cost/redirect": 11, "path/direct": 900, "path/redirect": 1300, "path/worker-route4": 700})}
	var b bytes.Buffer
	if err := WriteTable(&b, now, was); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| instructions/packet |     6.1 | above direct |   change |\n",
		"| cost/redirect       |   11.00 |              | +10.00 % |\n",
		"| path/direct         |  900.00 |              |  +0.00 % |\n",
		"| path/redirect       | 1300.00 |       400.00 |  +8.33 % |\n",
		"| path/worker-route4  |  700.00 |              |  +0.00 % |\n", // a part of a path
		"6.1: Linux 6.1-test, Debian's package 6.1.2-1\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no line %q in:\n%s", want, b.String())
		}
	}
	if n := strings.Count(b.String(), "\n"); n != 8 {
		t.Errorf("%d lines, want 8:\n%s", n, b.String())
	}
}
