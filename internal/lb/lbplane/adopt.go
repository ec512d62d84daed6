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
stageMaps are the maps that a new program adopts when the load balancer is attached again, by another process or with
other options. Idle times, rates and the seed are constants of each program.

	config  If all of them fit, the new program shares them. What is written to them before the swap is then in force
	        for the running program at once. If one does not fit, the new program gets copies of all, and writing to
	        them does not touch the running program. Rings of another size begin empty.
	others  Each is shared if it fits and copied otherwise. The counters of a copy lack the packets between copying
	        and the swap. For flows see migrateFlows.

A map fits if its layout and its size are the same. A map whose layout differs, in another version of culvert, begins
empty. The map lb_state says what the numbers of VIPs and backends mean: if its layout differs nothing is adopted.
*/
var stageMaps = []struct {
	name   string
	config bool
	copy   func(p *Part, from, to *ebpf.Map) error // copies into a map of another size
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
		return nil // senders repeat the few datagrams that are in flight now
	}},
	{bpfobj.PipelineMapLbFlows, false, func(p *Part, from, _ *ebpf.Map) error {
		p.flowsFrom = from // Adopt migrates them
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
	for _, m := range stageMaps {
		shareConfig = shareConfig && (!m.config || l.Fits(m.name))
	}
	for _, m := range stageMaps {
		switch {
		case m.config && shareConfig, !m.config && l.Fits(m.name):
			shared = append(shared, m.name)
		case m.name == bpfobj.PipelineMapLbRings && !sameRings:
		case l.SameLayout(m.name):
			p.copied = append(p.copied, m.name)
		}
	}
	return shared
}

// copyMaps copies the contents of old's maps into the maps that the new program does not share.
func (p *Part) copyMaps(old, inst *datapath.Instance) error {
	for _, m := range stageMaps {
		if !slices.Contains(p.copied, m.name) {
			continue
		}
		if err := m.copy(p, old.Map(m.name), inst.Map(m.name)); err != nil {
			return fmt.Errorf("copying map %s: %w", m.name, err)
		}
	}
	return nil
}

// copyArray copies the values of an array as far as there is room. It skips zeros, which a new map has anyway.
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
		if room := p.options.VIPs; int(raw.Number) >= room {
			return fmt.Errorf("VIP %v has number %d, but there is room for %d only: delete it first, or make room for %d",
				bpfobj.WordsAddr(key.Addr.W), raw.Number, room, raw.Number+1)
		}
		if err := to.Put(key, raw); err != nil {
			return err
		}
	}
	return it.Err()
}

func (p *Part) copyBackends(from, to *ebpf.Map) error {
	room := to.MaxEntries()
	for n := range from.MaxEntries() {
		var slot bpfobj.PipelineLbBackendLatch
		if err := from.Lookup(n, &slot); err != nil {
			return err
		}
		if slot == (bpfobj.PipelineLbBackendLatch{}) {
			continue
		}
		if n < room {
			if err := to.Put(n, slot); err != nil {
				return err
			}
			continue
		}
		if b := slot.Version[slot.Seq&1]; b.Flags&backendUsed != 0 {
			return fmt.Errorf("backend %v has number %d, but there is room for %d only: delete it first, or make room for %d",
				bpfobj.WordsAddr(b.Addr.W), n, room, n+1)
		}
	}
	return nil
}

// copyRings shares the old program's rings with the new one. That is safe because a ring is never changed, only replaced.
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
