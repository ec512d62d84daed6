// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/testbed"
)

// TestWorkersScenario measures a little with no, one and two workers: every packet is accounted for, flows keep their
// order, and those by turns lose it.
func TestWorkersScenario(t *testing.T) {
	testbed.NeedRoot(t)
	if load.AllowedCPUs() < 2 {
		t.Fatal("needs two CPUs")
	}
	o := Options{
		Rows: []string{
			"culvert-cold@workers0", "culvert-cold@workers1", "culvert-cold@workers2", "round-robin@workers2",
		},
		Rounds: 1, Round: 50 * time.Millisecond, Progress: io.Discard,
	}
	r, err := Workers().Measure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != len(o.Rows) {
		t.Fatalf("%d rows, want %d", len(r.Rows), len(o.Rows))
	}
	for i, row := range r.Rows {
		if row.Name != o.Rows[i] || !row.Valid || row.Received == 0 {
			t.Errorf("row %+v, want a valid %s", row, o.Rows[i])
		}
		if want := int(row.Name[len(row.Name)-1] - '0'); row.Workers == nil || *row.Workers != want {
			t.Errorf("%s: workers %v", row.Name, row.Workers)
		}
		if row.Order == nil || row.Order.Packets != row.Received || row.Order.Duplicates != 0 {
			t.Fatalf("%s: order %+v of %d packets received", row.Name, row.Order, row.Received)
		}
		if turns := strings.HasPrefix(row.Name, "round-robin"); (row.Order.Reordered > 0) != turns {
			t.Errorf("%s: %d packets reordered", row.Name, row.Order.Reordered)
		}
	}
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
