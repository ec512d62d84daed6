// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"culvert/internal/stats"
)

// carryCounters copies what could not be taken over because its map has grown.
func (i *Instance) carryCounters(old *Instance, reused map[string]*ebpf.Map) error {
	if reused[pipelineMapScionTraffic] != nil {
		return nil
	}
	from, to := old.maps[pipelineMapScionTraffic], i.maps[pipelineMapScionTraffic]
	if from == nil || from.ValueSize() != to.ValueSize() {
		return nil
	}
	for slot := range min(from.MaxEntries(), to.MaxEntries()) {
		var values []pipelineScionCounters
		if err := from.Lookup(slot, &values); err != nil {
			return fmt.Errorf("copying the counters of link %d: %w", slot, err)
		}
		if err := to.Put(slot, values); err != nil {
			return fmt.Errorf("copying the counters of link %d: %w", slot, err)
		}
	}
	return nil
}

// Ports reads the counters of all interfaces ever served; reasons that were never given are left
// out.
func (i *Instance) Ports() ([]stats.Port, error) {
	attached := i.Attached()
	var all []stats.Port
	for _, name := range slices.Sorted(maps.Keys(i.meta.Ports)) {
		p := stats.Port{
			Interface: name,
			Attached:  slices.Contains(attached, name),
			Reasons:   []stats.Reason{},
		}
		slot := i.meta.Ports[name]
		for n := range 2 * reasonCount {
			r := Reasons()[n%reasonCount]
			if r.Name == "" {
				continue
			}
			c, err := i.counter(slot*2*reasonCount + n)
			if err != nil {
				return nil, err
			}
			if c.Packets == 0 {
				continue
			}
			p.Reasons = append(p.Reasons, stats.Reason{
				Name:    r.Name,
				Verdict: string(r.Verdict),
				Limited: n >= reasonCount,
				Packets: c.Packets,
				Bytes:   c.Bytes,
			})
		}
		losses, err := i.losses(slot)
		if err != nil {
			return nil, err
		}
		p.Losses = losses
		all = append(all, p)
	}
	return all, nil
}

func (i *Instance) counter(index int) (sum pipelineCounter, err error) {
	var values []pipelineCounter
	if err := i.maps[pipelineMapCounters].Lookup(uint32(index), &values); err != nil {
		return sum, fmt.Errorf("reading counter %d of %s: %w", index, i.Name(), err)
	}
	for _, v := range values {
		sum.Packets += v.Packets
		sum.Bytes += v.Bytes
	}
	return sum, nil
}

// LinkCounters reads what the reference router counts, for each of Config.Links.
func (i *Instance) LinkCounters() ([]stats.LinkCounters, error) {
	all := make([]stats.LinkCounters, len(i.meta.Config.Links))
	for n, l := range i.meta.Config.Links {
		var values []pipelineScionCounters
		slot := uint32(i.meta.Counters[l.Name])
		if err := i.maps[pipelineMapScionTraffic].Lookup(slot, &values); err != nil {
			return nil, fmt.Errorf("reading the counters of link %s: %w", l.Name, err)
		}
		for _, v := range values {
			addLinkCounters(&all[n], &v)
		}
	}
	return all, nil
}

func addLinkCounters(sum *stats.LinkCounters, v *pipelineScionCounters) {
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
