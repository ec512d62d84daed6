// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// sampleFlows is the number of flows after which sampling ends. The estimate is then right to a few percent.
	sampleFlows = 4096
	// sampleStep is the number of buckets that are read between two tests of the count.
	sampleStep = 256
	// sampleStretch is the largest number of buckets that are read: more than a table of the default size has.
	sampleStretch = 1 << 18
)

// Fullness says how full a table for so many flows is with used ones in it: "full", "nearly full" with more than four fifths, or
// "". Half of the places of each bucket are spare, so a full table still takes most new flows.
func Fullness(used uint64, flows int) string {
	switch {
	case used >= uint64(flows):
		return "full"
	case used > uint64(flows)*4/5:
		return "nearly full"
	}
	return ""
}

// FlowEstimate returns an estimate of the number of flows in the flow table, without expired ones. Flows are spread by a
// hash, so a part of the table is read. That takes some milliseconds, whatever the size. The number is exact for fewer than
// 4096 flows in a table for less than 1,800,000 flows, such as the default one.
func (p *Plane) FlowEstimate() (uint64, error) {
	fail := func(err error) (uint64, error) {
		return 0, fmt.Errorf("looking at the flows of %s: %w", p.Name(), err)
	}
	f := flowsOf(p.inst)
	table, err := f.open(0, min(sampleStretch, f.buckets()), unix.PROT_READ)
	if err != nil {
		return fail(err)
	}
	defer table.close()
	c, err := f.options.clock()
	if err != nil {
		return fail(err)
	}
	live, seen := uint64(0), 0
	for seen < len(table.buckets) && live < sampleFlows {
		part := flowTable{buckets: table.buckets[seen:min(seen+sampleStep, len(table.buckets))]}
		part.visit(func(_ flowKey, _ BackendID, t uint16) bool {
			if !c.expired(t) {
				live++
			}
			return true
		})
		seen += len(part.buckets)
	}
	return live * uint64(f.buckets()) / uint64(seen), nil
}
