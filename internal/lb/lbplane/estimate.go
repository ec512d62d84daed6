// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// sampleFlows is how many flows tell enough: their number is right to some percent then.
	sampleFlows = 4096
	// sampleStep is how many buckets are looked at before they are counted.
	sampleStep = 256
	// sampleStretch is how many buckets are looked at at most: more than a table of the default size has.
	sampleStretch = 1 << 18
)

// FlowEstimate returns about how many flows the flow table has, without those that have expired. Flows are spread over it
// by a hash, so that a part of it tells; it takes some milliseconds, whatever the size. Few flows in a table for less than
// 1,800,000, as it is by default, are counted.
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
