// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

const (
	// balanceSampleFlows is how many flows tell enough: their number is right to some percent then.
	balanceSampleFlows = 4096
	// balanceSampleStep is how many buckets are looked at before they are counted.
	balanceSampleStep = 256
	// balanceSampleStretch is how many buckets are looked at at most: more than a table of the default size has.
	balanceSampleStretch = 1 << 18
)

// FlowEstimate returns about how many flows the flow table has, without those that have expired. Flows are spread over it
// by a hash, so that a part of it tells; it takes some milliseconds, whatever the size. Few flows in a table for less than
// 1,800,000, as it is by default, are counted.
func (p *BalancePlane) FlowEstimate() (uint64, error) {
	fail := func(err error) (uint64, error) {
		return 0, fmt.Errorf("looking at the flows of %s: %w", p.Name(), err)
	}
	m := p.inst.maps[bpfobj.PipelineMapLbFlows]
	table, err := openBalanceTable(m, 0, min(balanceSampleStretch, m.MaxEntries()), unix.PROT_READ)
	if err != nil {
		return fail(err)
	}
	defer table.close()
	c, err := p.inst.Balance().clock()
	if err != nil {
		return fail(err)
	}
	live, seen := uint64(0), 0
	for seen < len(table.buckets) && live < balanceSampleFlows {
		part := balanceTable{buckets: table.buckets[seen:min(seen+balanceSampleStep, len(table.buckets))]}
		part.visit(func(_ balanceKey, _ BalanceOwner, t uint16) bool {
			if !c.expired(t) {
				live++
			}
			return true
		})
		seen += len(part.buckets)
	}
	return live * uint64(m.MaxEntries()) / uint64(seen), nil
}
