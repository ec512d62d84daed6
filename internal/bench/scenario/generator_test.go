// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"io"
	"testing"
	"time"

	"culvert/internal/bench/peer"
	"culvert/internal/testbed"
)

// Both generators account for every packet and leave nothing behind.
func TestGeneratorScenario(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	r, err := Generator().Measure(context.Background(), Options{Rounds: 2, Round: 20 * time.Millisecond, Progress: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2 || r.Rows[0].Name != "kernel" || r.Rows[1].Name != "tcpreplay" {
		t.Fatalf("rows %+v", r.Rows)
	}
	for _, row := range r.Rows {
		if !row.Valid || row.Received == 0 || row.Mpps.Median <= 0 || row.FrameSize != peer.FrameSize || len(row.CPUs) != 1 {
			t.Errorf("row %+v", row)
		}
	}
	if ratio := r.Ratios["kernel/tcpreplay"]; ratio <= 0 {
		t.Errorf("ratio %v", ratio)
	}
}
