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
	r.LB.Drained, r.LB.Weightless, r.LB.DrainedVIPs = 0, 2, []string{"192.0.2.1:80/tcp", "192.0.2.2:80/tcp", "192.0.2.3:80/tcp", "192.0.2.4:80/tcp"}
	for _, line := range []string{
		"  lb  2 VIPs (4 drained), 5 backends, 1 down, 2 of weight 0  flow table for 1,048,576, 76.7MB  in use about 1,234",
		"  lb  DRAINED: 192.0.2.1:80/tcp, 192.0.2.2:80/tcp, 192.0.2.3:80/tcp and 1 more: not announced because of it: culvert lb undrain 192.0.2.1:80/tcp",
	} {
		if got := r.text(epoch, "", false); !slices.Contains(got, line) {
			t.Errorf("VIPs are drained: %q, want %q", got, line)
		}
	}
	r.LB.Drained, r.LB.Weightless, r.LB.DrainedVIPs = 2, 0, nil
	r.Interfaces[0].Attached = false
	if got := r.text(epoch, "", false); slices.Contains(got, want) {
		t.Errorf("without interfaces: %q", got)
	}
}
