// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
)

/*
What goes on when a load balancer is attached again, by another process or with other options. Idle times, rates and the
seed are the new program's own and touch nothing. Of balanceMaps:

	config  As long as all of them fit, the new program has the same ones, and what is written to them while it is
	        being brought up is in force for the running one at once. If one does not, the new program gets its own,
	        with the same contents: the running one sees nothing of what is written to them. Rings of another size
	        begin without positions.
	others  Each is the same one if it fits, and a copy otherwise. Packets that come between the copying and the
	        swap are missing in the copy's counters; for flows see carryFlows.

A map whose layout has changed, by another version of culvert, begins empty. The state says what the numbers of VIPs and
members mean: without it nothing is taken over.
*/
var balanceMaps = []struct {
	name   string
	config bool
	copy   func(p *BalancePart, from, to *ebpf.Map) error // to a map of another size
}{
	{bpfobj.PipelineMapLbVips, true, (*BalancePart).copyBalanceVIPs},
	{bpfobj.PipelineMapLbVipCache, true, copyArray[bpfobj.PipelineLbVipCacheEntry]},
	{bpfobj.PipelineMapLbAddrs, true, copyArray[bpfobj.PipelineBloom]},
	{bpfobj.PipelineMapLbRings, true, copyBalanceRings},
	{bpfobj.PipelineMapLbBackends, true, (*BalancePart).copyBalanceMembers},
	{bpfobj.PipelineMapLbServers, true, copyBalanceServers},
	{bpfobj.PipelineMapLbNamedVlans, true, copyBalanceNamedVLANs},
	{bpfobj.PipelineMapLbState, true, copyArray[bpfobj.PipelineLbChunk]},
	{bpfobj.PipelineMapLbTraffic, false, copyPerCPU[bpfobj.PipelineLbBackendCounters]},
	{bpfobj.PipelineMapLbEvents, false, copyPerCPU[uint64]},
	{bpfobj.PipelineMapLbHealth, false, copyArray[bpfobj.PipelineLbFinding]},
	{bpfobj.PipelineMapLbFragments, false, func(*BalancePart, *ebpf.Map, *ebpf.Map) error {
		return nil // what is on its way while sizes change is soon sent again
	}},
	{bpfobj.PipelineMapLbFlows, false, func(p *BalancePart, from, _ *ebpf.Map) error {
		p.flowsFrom = from // they come last
		return nil
	}},
}

// Shared implements Part.
func (p *BalancePart) Shared(l *Loading) (shared []string) {
	old := l.Old.Balance()
	if old == nil || !l.Same(bpfobj.PipelineMapLbState) {
		return nil
	}
	sameRings := old.RingSize == p.options.RingSize
	shareConfig := sameRings
	for _, b := range balanceMaps {
		shareConfig = shareConfig && (!b.config || l.Fits(b.name))
	}
	for _, b := range balanceMaps {
		switch {
		case b.config && shareConfig, !b.config && l.Fits(b.name):
			shared = append(shared, b.name)
		case b.name == bpfobj.PipelineMapLbRings && !sameRings:
		case l.Same(b.name):
			p.copied = append(p.copied, b.name)
		}
	}
	return shared
}

// copyMaps copies what old knows into the new program's own maps.
func (p *BalancePart) copyMaps(old, inst *Instance) error {
	for _, b := range balanceMaps {
		if !slices.Contains(p.copied, b.name) {
			continue
		}
		if err := b.copy(p, old.maps[b.name], inst.maps[b.name]); err != nil {
			return fmt.Errorf("copying map %s: %w", b.name, err)
		}
	}
	return nil
}

// copyArray copies the values of an array as far as there is room; those that are 0 are so in a new map.
func copyArray[T comparable](_ *BalancePart, from, to *ebpf.Map) error {
	for n := range min(from.MaxEntries(), to.MaxEntries()) {
		var zero, value T
		if err := from.Lookup(n, &value); err != nil {
			return err
		}
		if value == zero {
			continue
		}
		if err := to.Put(n, value); err != nil {
			return err
		}
	}
	return nil
}

func copyPerCPU[T comparable](_ *BalancePart, from, to *ebpf.Map) error {
	var zero T
	for n := range min(from.MaxEntries(), to.MaxEntries()) {
		var values []T
		if err := from.Lookup(n, &values); err != nil {
			return err
		}
		if !slices.ContainsFunc(values, func(v T) bool { return v != zero }) {
			continue
		}
		if err := to.Put(n, values); err != nil {
			return err
		}
	}
	return nil
}

func (p *BalancePart) copyBalanceVIPs(from, to *ebpf.Map) error {
	var (
		key bpfobj.PipelineLbVipKey
		raw bpfobj.PipelineLbVip
	)
	it := from.Iterate()
	for it.Next(&key, &raw) {
		if most := p.options.VIPs; int(raw.Number) >= most {
			return fmt.Errorf("VIP %v has number %d, and there is to be room for %d: delete it first, or leave room for %d",
				bpfobj.WordsAddr(key.Addr.W), raw.Number, most, raw.Number+1)
		}
		if err := to.Put(key, raw); err != nil {
			return err
		}
	}
	return it.Err()
}

func (p *BalancePart) copyBalanceMembers(from, to *ebpf.Map) error {
	most := to.MaxEntries()
	for n := range from.MaxEntries() {
		var slot bpfobj.PipelineLbBackendLatch
		if err := from.Lookup(n, &slot); err != nil {
			return err
		}
		if slot == (bpfobj.PipelineLbBackendLatch{}) {
			continue
		}
		if n < most {
			if err := to.Put(n, slot); err != nil {
				return err
			}
			continue
		}
		if m := slot.Version[slot.Seq&1]; m.Flags&balanceMemberUsed != 0 {
			return fmt.Errorf("backend %v has number %d, and there is to be room for %d: delete it first, or leave room for %d",
				bpfobj.WordsAddr(m.Addr.W), n, most, n+1)
		}
	}
	return nil
}

// copyBalanceRings has the new program use the rings that the old one uses: rings are never changed, but exchanged.
func copyBalanceRings(_ *BalancePart, from, to *ebpf.Map) error {
	for n := range min(from.MaxEntries(), to.MaxEntries()) {
		var ring *ebpf.Map
		err := from.Lookup(n, &ring)
		if bpfobj.NotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		err = to.Put(n, ring)
		ring.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func copyBalanceServers(_ *BalancePart, from, to *ebpf.Map) error {
	var (
		key   bpfobj.PipelineLbServerKey
		owner uint32
	)
	it := from.Iterate()
	for it.Next(&key, &owner) {
		if err := to.Put(key, owner); err != nil {
			return err
		}
	}
	return it.Err()
}
