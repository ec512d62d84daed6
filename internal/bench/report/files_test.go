// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestFilesOfAReport(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "out")
	if err := CheckPrefix(prefix); err != nil {
		t.Fatal(err)
	}
	want := []string{prefix + ".json", prefix + ".md", prefix + "-rates.svg"}
	// The second call replaces the files.
	for range 2 {
		got, err := vethSample().WriteFiles(prefix)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("wrote %q, error %v, want %q", got, err, want)
		}
	}
	r, err := Read(prefix + ".json")
	if err != nil || !reflect.DeepEqual(r, vethSample()) {
		t.Errorf("error %v, read %+v", err, r)
	}
	md, err := os.ReadFile(prefix + ".md")
	if err != nil || string(md) != table(t, vethSample()) {
		t.Errorf("error %v, table\n%s", err, md)
	}
	if files, err := os.ReadDir(filepath.Dir(prefix)); err != nil || len(files) != 3 {
		t.Errorf("error %v, files %v", err, files)
	}
}

func TestBadPrefixes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string]string{
		dir + "/":            "say how names of files begin",
		dir + "/nowhere/out": "there is no directory " + dir + "/nowhere",
		file + "/out":        "is no directory",
		"/proc/self/out":     "write /proc/self/out",
	} {
		err := CheckPrefix(prefix)
		if err == nil {
			// CheckPrefix passes because root may write to any directory. WriteFiles fails then.
			_, err = vethSample().WriteFiles(prefix)
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line with %q", prefix, err, want)
		}
	}
	if _, err := (&Report{Scenario: "x", Rows: []Row{{Name: "a"}}}).WritePlots(filepath.Join(dir, "x")); err == nil {
		t.Error("a report without figures was drawn")
	}
}

func TestBadReports(t *testing.T) {
	dir := t.TempDir()
	row := func(rest string) string { return `{"scenario":"veth","rows":[{"name":"a",` + rest + `}]}` }
	for text, want := range map[string]string{
		"":                                "not JSON",
		"| row | Mpps |":                  "not JSON",
		`{"scenario":"veth"}{}`:           "not JSON",
		`[1]`:                             "not JSON",
		`{"rows":[{"name":"a"}]}`:         "no scenario",
		`{"scenario":"veth"}`:             "no rows",
		`{"scenario":"veth","rows":[{}]}`: "row 1 has no name",
		`{"scenario":"veth","rows":[{"name":"a"},{"name":"a"}]}`: "row a is in it twice",
		row(`"mpps":3`): "not JSON",
		row(`"mpps":{"median":3,"min":4,"max":5}`): "median of mpps, 3, is not between min 4 and max 5",
		row(`"mpps":{"median":1e999}`):             "not JSON",
		row(`"workers":-1`):                        "-1 workers",
		row(`"workers":99999999`):                  "99999999 workers",
		row(`"frame_size":-1`):                     "-1 bytes",
		row(`"latency":[{"p50_ns":5,"p90_ns":4}]`): "do not ascend",
	} {
		file := filepath.Join(dir, "report.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Read(file)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") ||
			!strings.Contains(err.Error(), file) {
			t.Errorf("%s: read %+v, error %v, want one line with %q", text, r, err, want)
		}
	}
	for _, name := range []string{dir, filepath.Join(dir, "missing.json")} {
		if _, err := Read(name); err == nil || strings.Count(err.Error(), name) != 1 {
			t.Errorf("%s: error %v", name, err)
		}
	}
	big := filepath.Join(dir, "big.json")
	if err := os.WriteFile(big, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, maxFile+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(big); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("error %v", err)
	}
}

func TestInvalid(t *testing.T) {
	if got := vethSample().Invalid(); !slices.Equal(got, []string{"culvert+reference"}) {
		t.Errorf("invalid rows %q", got)
	}
	if got := costSample().Invalid(); got != nil {
		t.Errorf("invalid rows %q", got)
	}
}

// A report with nothing to draw has its table and JSON in files all the same.
func TestFilesWithoutPlots(t *testing.T) {
	r := &Report{Scenario: "fleet", Rows: []Row{{
		Name: "urgent@nodes20", Valid: true, Samples: map[string][]float64{"in force": {0.25, 1500}},
		Fleet: &Fleet{Nodes: 20, Figures: []FleetFigure{{Name: "in force", Unit: "s", Spread: NewSpread([]float64{0.25, 1500})}}},
	}}}
	prefix := filepath.Join(t.TempDir(), "fleet")
	files, err := r.WriteFiles(prefix)
	if err != nil || !slices.Equal(files, []string{prefix + ".json", prefix + ".md"}) {
		t.Fatalf("files %v, %v", files, err)
	}
	table, err := os.ReadFile(prefix + ".md")
	if want := "| urgent@nodes20 | in force |    750 | 0.25 | 1500 | s    |      2 |"; err != nil || !strings.Contains(string(table), want) {
		t.Errorf("table %s, %v", table, err)
	}
	if again, err := Read(prefix + ".json"); err != nil || again.Rows[0].Fleet.Figures[0].Spread.Max != 1500 {
		t.Errorf("read again: %+v, %v", again, err)
	}
}
