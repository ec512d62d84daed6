// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"fmt"

	"culvert/internal/bpfobj"
	"culvert/internal/stats"
)

// copyCounters copies the counters of links from a data plane whose map is too small to be shared.
func (p Plane) copyCounters(old Plane) error {
	from, to := old.Map(bpfobj.PipelineMapScionTraffic), p.Map(bpfobj.PipelineMapScionTraffic)
	if from == nil || from.ValueSize() != to.ValueSize() {
		return nil
	}
	for slot := range min(from.MaxEntries(), to.MaxEntries()) {
		var values []bpfobj.PipelineScionCounters
		if err := from.Lookup(slot, &values); err != nil {
			return fmt.Errorf("copying the counters of link %d: %w", slot, err)
		}
		if err := to.Put(slot, values); err != nil {
			return fmt.Errorf("copying the counters of link %d: %w", slot, err)
		}
	}
	return nil
}

// LinkCounters returns the counters of each of Config.Links, as the reference router counts.
func (p Plane) LinkCounters() ([]stats.LinkCounters, error) {
	all := make([]stats.LinkCounters, len(p.Config().Links))
	slots := p.linkSlots()
	for n, l := range p.Config().Links {
		var values []bpfobj.PipelineScionCounters
		slot := uint32(slots[l.Name])
		if err := p.Map(bpfobj.PipelineMapScionTraffic).Lookup(slot, &values); err != nil {
			return nil, fmt.Errorf("reading the counters of link %s: %w", l.Name, err)
		}
		for _, v := range values {
			addLinkCounters(&all[n], &v)
		}
	}
	return all, nil
}

// addLinkCounters adds the counters of one CPU.
func addLinkCounters(sum *stats.LinkCounters, v *bpfobj.PipelineScionCounters) {
	for class := range v.In {
		sum.In[class].Packets += v.In[class].Packets
		sum.In[class].Bytes += v.In[class].Bytes
		sum.Dropped[class] += v.Dropped[class]
		sum.Limited[class] += v.Limited[class]
		for typ := range v.Out {
			sum.Out[typ][class].Packets += v.Out[typ][class].Packets
			sum.Out[typ][class].Bytes += v.Out[typ][class].Bytes
		}
	}
}
