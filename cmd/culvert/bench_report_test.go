// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"culvert/internal/bench/report"
)

// writeReport writes a report with one row, whose instructions are exact.
func writeReport(t *testing.T, name, scenario, row string, instructions float64) string {
	t.Helper()
	r := &report.Report{
		Scenario: scenario, Rows: []report.Row{{Name: row, Instructions: &instructions, Valid: true}},
	}
	file := filepath.Join(t.TempDir(), name)
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := r.WriteJSON(f); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestBenchCompare(t *testing.T) {
	old := writeReport(t, "old.json", "insn", "culvert-cold", 1000)
	now := writeReport(t, "new.json", "insn", "culvert-cold", 1100)
	other := writeReport(t, "other.json", "cost", "culvert-cold", 1000)
	for _, tc := range []struct {
		args   string
		status int
		stdout string
		stderr string
	}{
		{old + " " + old, 0, "| same", ""},
		{old + " " + now, 0, "| slower", ""},
		{now + " " + old, 0, "| faster", ""},
		{old + " " + now + " -j", 0, `"verdict":"slower"`, ""},
		{old + " " + now + " --fail-on-slower 11", 0, "| slower", ""},
		{old + " " + now + " --fail-on-slower 5", 1, "| slower", "slower by more than 5 %, or invalid: culvert-cold (slower)"},
		{old + " " + now + " --fail-on-slower 0", 1, "| slower", "culvert-cold"},
		{old + " " + now + " --fail-on-slower -1", 2, "", "0 or above"},
		{old + " " + now + " --fail-on-slower NaN", 2, "", "0 or above"},
		{old + " " + now + " --base nothing", 2, "", `no row "nothing" in both reports`},
		{old + " " + now + " --base culvert-cold", 0, "| slower", ""},
		{old + " " + other, 1, "", "different scenarios, insn and cost"},
		{old + " /nowhere.json", 1, "", "read report /nowhere.json: no such file"},
		{old + " " + os.Args[0], 1, "", "read report"},
		{old, 2, "", "takes 2 arguments, not 1"},
	} {
		status, stdout, stderr := culvert(t, append([]string{"bench", "compare"}, strings.Fields(tc.args)...)...)
		if status != tc.status || !strings.Contains(stdout, tc.stdout) || !strings.Contains(stderr, tc.stderr) {
			t.Errorf("compare %s: status %d, %q, %q: want %d, %q, %q", tc.args, status, stdout, stderr, tc.status, tc.stdout,
				tc.stderr)
		}
		if status != 0 && strings.Count(stderr, "\n") != 1 {
			t.Errorf("compare %s: error is not one line: %q", tc.args, stderr)
		}
		if status == 2 && stdout != "" {
			t.Errorf("compare %s: wrong usage, but %q", tc.args, stdout)
		}
	}
}

// TestBenchPrints holds what 'bench' prints with -j against its schemas. Measurements take minutes: in the place of what they print there are
// a report, written as they write it, and the baseline of instructions, which 'bench insn' has written.
func TestBenchPrints(t *testing.T) {
	page := newAnswers(t)
	old := writeReport(t, "old.json", "insn", "culvert-cold", 1000)
	text, err := os.ReadFile(old)
	must(err)
	page.printed(t, "bench run", string(text))
	text, err = os.ReadFile("../../internal/guest/testdata/baseline.json")
	must(err)
	page.printed(t, "bench insn", string(text))
	status, stdout, stderr := culvert(t, "bench", "compare", "-j", old, writeReport(t, "new.json", "insn", "culvert-cold", 1100))
	if status != 0 {
		t.Errorf("status %d, %s", status, stderr)
	}
	page.printed(t, "bench compare", stdout)
}

func TestBenchPlot(t *testing.T) {
	file := writeReport(t, "insn.json", "insn", "culvert-cold", 1000)
	beside := strings.TrimSuffix(file, ".json") + "-instructions.svg"
	if status, stdout, stderr := culvert(t, "bench", "plot", file); status != 0 || stdout != beside+"\n" {
		t.Errorf("status %d, %q, %q: want %s", status, stdout, stderr, beside)
	}
	prefix := filepath.Join(t.TempDir(), "p")
	if status, stdout, stderr := culvert(t, "bench", "plot", file, "-o", prefix); status != 0 || stdout != prefix+"-instructions.svg\n" {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
	first, err := os.ReadFile(beside)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(prefix + "-instructions.svg")
	if err != nil || string(first) != string(second) {
		t.Errorf("the two plots differ, or error %v", err)
	}
	for _, args := range [][]string{
		{file, "-o", "/nowhere/p"}, {"/nowhere.json"}, {filepath.Dir(file)}, {beside},
	} {
		status, stdout, stderr := culvert(t, append([]string{"bench", "plot"}, args...)...)
		if status != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("plot %q: status %d, %q, %q", args, status, stdout, stderr)
		}
	}
}

// TestBenchRunChecksThePrefix wants a prefix under which no files can be written to be refused before anything is measured.
func TestBenchRunChecksThePrefix(t *testing.T) {
	status, stdout, stderr := culvert(t, "bench", "run", "veth", "-o", "/nowhere/veth")
	if status != 1 || stdout != "" || stderr != "culvert: write /nowhere/veth.json: there is no directory /nowhere: make it first\n" {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
}
