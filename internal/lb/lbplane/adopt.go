// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

/*
What goes on when a load balancer is attached again, by another process or with other options. Idle times, rates and the
seed are the new program's own and touch nothing. Of stageMaps:

	config  As long as all of them fit, the new program has the same ones, and what is written to them while it is
	        being brought up is in force for the running one at once. If one does not, the new program gets its own,
	        with the same contents: the running one sees nothing of what is written to them. Rings of another size
	        begin without positions.
	others  Each is the same one if it fits, and a copy otherwise. Packets that come between the copying and the
	        swap are missing in the copy's counters; for flows see migrateFlows.

A map whose layout has changed, by another version of culvert, begins empty. The state says what the numbers of VIPs and
backends mean: without it nothing is taken over.
*/
var stageMaps = []struct {
	name   string
	config bool
	copy   func(p *Part, from, to *ebpf.Map) error // to a map of another size
}{
	{bpfobj.PipelineMapLbVips, true, (*Part).copyVIPs},
	{bpfobj.PipelineMapLbVipCache, true, copyArray[bpfobj.PipelineLbVipCacheEntry]},
	{bpfobj.PipelineMapLbAddrs, true, copyArray[bpfobj.PipelineBloom]},
	{bpfobj.PipelineMapLbRings, true, copyRings},
	{bpfobj.PipelineMapLbBackends, true, (*Part).copyBackends},
	{bpfobj.PipelineMapLbServers, true, copyServerIDs},
	{bpfobj.PipelineMapLbNamedVlans, true, copyNamedVLANs},
	{bpfobj.PipelineMapLbState, true, copyArray[bpfobj.PipelineLbChunk]},
	{bpfobj.PipelineMapLbTraffic, false, copyPerCPU[bpfobj.PipelineLbBackendCounters]},
	{bpfobj.PipelineMapLbEvents, false, copyPerCPU[uint64]},
	{bpfobj.PipelineMapLbHealth, false, copyArray[bpfobj.PipelineLbFinding]},
	{bpfobj.PipelineMapLbFragments, false, func(*Part, *ebpf.Map, *ebpf.Map) error {
		return nil // what is on its way while sizes change is soon sent again
	}},
	{bpfobj.PipelineMapLbFlows, false, func(p *Part, from, _ *ebpf.Map) error {
		p.flowsFrom = from // they come last
		return nil
	}},
}

// Shared implements datapath.Part.
func (p *Part) Shared(l *datapath.Loading) (shared []string) {
	old := OptionsOf(l.Old)
	if old == nil || !l.SameLayout(bpfobj.PipelineMapLbState) {
		return nil
	}
	sameRings := old.RingSize == p.options.RingSize
	shareConfig := sameRings
	for _, b := range stageMaps {
		shareConfig = shareConfig && (!b.config || l.Fits(b.name))
	}
	for _, b := range stageMaps {
		switch {
		case b.config && shareConfig, !b.config && l.Fits(b.name):
			shared = append(shared, b.name)
		case b.name == bpfobj.PipelineMapLbRings && !sameRings:
		case l.SameLayout(b.name):
			p.copied = append(p.copied, b.name)
		}
	}
	return shared
}

// copyMaps copies what old knows into the new program's own maps.
func (p *Part) copyMaps(old, inst *datapath.Instance) error {
	for _, b := range stageMaps {
		if !slices.Contains(p.copied, b.name) {
			continue
		}
		if err := b.copy(p, old.Map(b.name), inst.Map(b.name)); err != nil {
			return fmt.Errorf("copying map %s: %w", b.name, err)
		}
	}
	return nil
}

// copyArray copies the values of an array as far as there is room; those that are 0 are so in a new map.
func copyArray[T comparable](_ *Part, from, to *ebpf.Map) error {
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

func copyPerCPU[T comparable](_ *Part, from, to *ebpf.Map) error {
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

func (p *Part) copyVIPs(from, to *ebpf.Map) error {
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

func (p *Part) copyBackends(from, to *ebpf.Map) error {
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
		if m := slot.Version[slot.Seq&1]; m.Flags&backendUsed != 0 {
			return fmt.Errorf("backend %v has number %d, and there is to be room for %d: delete it first, or leave room for %d",
				bpfobj.WordsAddr(m.Addr.W), n, most, n+1)
		}
	}
	return nil
}

// copyRings has the new program use the rings that the old one uses: rings are never changed, but exchanged.
func copyRings(_ *Part, from, to *ebpf.Map) error {
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

func copyServerIDs(_ *Part, from, to *ebpf.Map) error {
	var (
		key     bpfobj.PipelineLbServerKey
		backend uint32
	)
	it := from.Iterate()
	for it.Next(&key, &backend) {
		if err := to.Put(key, backend); err != nil {
			return err
		}
	}
	return it.Err()
}
