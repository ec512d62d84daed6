// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/report"
	"culvert/internal/testbed"
)

// Without workers and with one or two, packets stay in order.
func TestWorkersScenario(t *testing.T) {
	for _, row := range measureWorkers(t, "culvert-cold@workers0", "culvert-cold@workers1", "culvert-cold@workers2") {
		if row.Order.Reordered != 0 {
			t.Errorf("%s: %d packets reordered", row.Name, row.Order.Reordered)
		}
	}
}

// Packets that two workers take round-robin get out of order, and the scenario notices. On a busy machine the workers may keep
// in step for some rounds.
func TestTurnsReorder(t *testing.T) {
	for range 50 {
		if measureWorkers(t, "round-robin@workers2")[0].Order.Reordered > 0 {
			return
		}
	}
	t.Error("no packet came out of order in 50 rounds")
}

// measureWorkers measures rows for a moment, and checks that each accounts for every packet.
func measureWorkers(t *testing.T, names ...string) []report.Row {
	t.Helper()
	testbed.NeedRoot(t)
	if load.AllowedCPUs() < 2 {
		t.Fatal("needs two CPUs")
	}
	r, err := Workers().Measure(t.Context(), Options{
		Rows: names, Rounds: 1, Round: 50 * time.Millisecond, Progress: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != len(names) {
		t.Fatalf("%d rows, want %d", len(r.Rows), len(names))
	}
	for i, row := range r.Rows {
		if row.Name != names[i] || !row.Valid || row.Received == 0 {
			t.Errorf("row %+v, want a valid %s", row, names[i])
		}
		if want := int(row.Name[len(row.Name)-1] - '0'); row.Workers == nil || *row.Workers != want {
			t.Errorf("%s: workers %v", row.Name, row.Workers)
		}
		if row.Order == nil || row.Order.Packets != row.Received || row.Order.Duplicates != 0 {
			t.Fatalf("%s: order %+v of %d packets received", row.Name, row.Order, row.Received)
		}
	}
	return r.Rows
}

func TestTooFewCPUsForWorkers(t *testing.T) {
	o := Options{Rows: []string{"culvert-cold@workers2"}, Progress: io.Discard}
	onOneCPU(t, func() {
		_, err := Workers().Measure(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), "row culvert-cold@workers2 needs 2 CPUs, and this process may use ") {
			t.Errorf("error is %v", err)
		}
	})
}

func TestWorkerCPUs(t *testing.T) {
	n := load.AllowedCPUs()
	list := workerCPUs(n)
	if len(list) != n || len(slices.Compact(slices.Sorted(slices.Values(list)))) != n {
		t.Fatalf("workers on CPUs %v, want %d different ones", list, n)
	}
	if list[n-1] != load.LastCPU() {
		t.Errorf("workers on CPUs %v, want the generator's CPU %d last", list, load.LastCPU())
	}
	if more := workerCPUs(n + 1); len(more) != n {
		t.Errorf("workers on CPUs %v", more)
	}
}
