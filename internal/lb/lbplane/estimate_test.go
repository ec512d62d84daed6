// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

// TestFlowEstimateWhole wants all buckets of a table of the default size to be read, so that a few flows are counted.
func TestFlowEstimateWhole(t *testing.T) {
	o, err := (&Options{}).Normal()
	if err != nil {
		t.Fatal(err)
	}
	if n := bucketsFor(o.Flows); n > sampleStretch {
		t.Errorf("%d of %d buckets are read", sampleStretch, n)
	}
}

// TestFlowEstimate inserts a few flows, and then so many that only a sample of the table is read.
func TestFlowEstimate(t *testing.T) {
	b := newBed(t, Options{Flows: 100_000, InsertRate: 1_000_000_000})
	b.vip(0, "192.0.2.1:80", 6, []Backend{b.backend(1, 0, "10.0.0.11")})
	from := 0
	fill := func(n int) {
		t.Helper()
		for ; from < n; from++ {
			client := fmt.Sprintf("203.0.%d.%d:1234", from>>8, from&255)
			_, _, err := b.inst.TestRun(b.packet(client, "192.0.2.1:80", &layers.TCP{SYN: true}, nil), "lb0")
			b.must(err)
		}
	}
	estimate := func() uint64 {
		t.Helper()
		n, err := b.plane.FlowEstimate()
		b.must(err)
		return n
	}
	fill(3)
	if n := estimate(); n != 3 {
		t.Errorf("%d flows, 3 are there", n)
	}
	fill(12_000)
	if n := estimate(); n < 11_000 || n > 13_000 {
		t.Errorf("about %d flows, 12,000 are there", n)
	}
}
