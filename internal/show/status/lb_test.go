// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"strings"
	"testing"

	"culvert/internal/lb/lbview"
)

func TestLBLine(t *testing.T) {
	r := Router{
		ID: "edge", NetNS: 1, Mode: "native", Interfaces: []Interface{port("eth1", 0)}, noSCION: true,
		LB: &LB{lbview.Counts{VIPs: 2, Backends: 5, Down: 1, Drained: 2, Flows: 1048576, Used: 1234, Memory: 76695552}},
	}
	const want = "  lb  2 VIPs, 5 backends, 1 down, 2 drained  flow table for 1,048,576, 76.7MB  in use about 1,234"
	if got := r.text(epoch, "", false); !slices.Contains(got, want) {
		t.Errorf("got %q", got)
	}
	for used, note := range map[uint64]string{
		900_000: "  in use about 900,000  NEARLY FULL: raise flows in [lb], a reload keeps those that there are",
		1048576: "  in use about 1,048,576  FULL: raise flows in [lb], a reload keeps those that there are",
	} {
		r.LB.Used = used
		if got := r.LB.line(); !strings.HasSuffix(got, note) {
			t.Errorf("got %q", got)
		}
	}
	r.LB.Used = 1234
	r.Interfaces[0].Attached = false
	if got := r.text(epoch, "", false); slices.Contains(got, want) {
		t.Errorf("without interfaces: %q", got)
	}
}
