// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"culvert/internal/bench/peer"
	"culvert/internal/testbed"
)

// Cost fails unless every program redirects all of its frames.
func TestCost(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	r, err := Cost().Measure(context.Background(), shortOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.Best == nil || row.Frames != peer.ColdFrames || row.Mpps != nil {
			t.Errorf("row %+v", row)
		}
	}
	if len(r.Rows) != 7 {
		t.Errorf("%d rows, want 7", len(r.Rows))
	}
}

// The error about a router that ends at once has the last line of its output.
func TestBrokenRouter(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	o := shortOptions(t)
	o.Rows, o.Router = []string{"reference"}, filepath.Join(t.TempDir(), "router")
	if err := os.WriteFile(o.Router, []byte("#!/bin/sh\necho cannot go on\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Veth().Measure(context.Background(), o); err == nil || !strings.Contains(err.Error(), "cannot go on") {
		t.Errorf("error %v does not have the router's last line", err)
	}
}

// All devices of scenario cost are single programs.
func TestCostCandidates(t *testing.T) {
	for _, c := range Cost().Candidates {
		if _, ok := c.Device(peer.DeviceOptions{}).(peer.SingleProgram); !ok {
			t.Errorf("%s is in the cost scenario but is no program", c.Name)
		}
	}
}
