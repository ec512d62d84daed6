// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/stats"
)

// carryCounters copies what could not be taken over because its map has grown.
func (i *Instance) carryCounters(old *Instance, reused map[string]*ebpf.Map) error {
	if reused[bpfobj.PipelineMapScionTraffic] != nil {
		return nil
	}
	from, to := old.maps[bpfobj.PipelineMapScionTraffic], i.maps[bpfobj.PipelineMapScionTraffic]
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

// carryReasons adds up what an instance whose reasons have other numbers has counted, by their names. What it counts
// from now on is lost.
func (i *Instance) carryReasons(old *Instance, reused map[string]*ebpf.Map) error {
	if reused[bpfobj.PipelineMapCounters] != nil || len(old.meta.Reasons) == 0 {
		return nil
	}
	names := reasonNames()
	for _, slot := range old.meta.Ports {
		for n := range 2 * len(old.meta.Reasons) {
			name := old.meta.Reasons[n%len(old.meta.Reasons)]
			now := slices.Index(names, name)
			if name == "" || now < 0 {
				continue
			}
			var values []bpfobj.PipelineCounter
			if err := old.maps[bpfobj.PipelineMapCounters].Lookup(uint32(slot*2*len(old.meta.Reasons)+n), &values); err != nil {
				return fmt.Errorf("copying the counters of %s: %w", name, err)
			}
			if n >= len(old.meta.Reasons) {
				now += bpfobj.ReasonCount
			}
			if err := i.maps[bpfobj.PipelineMapCounters].Put(uint32(slot*2*bpfobj.ReasonCount+now), values); err != nil {
				return fmt.Errorf("copying the counters of %s: %w", name, err)
			}
		}
	}
	return nil
}

// sameReasons refuses programs whose reasons have other numbers: their counters would be taken for those of others.
func (i *Instance) sameReasons() error {
	if slices.Equal(i.meta.Reasons, reasonNames()) {
		return nil
	}
	return fmt.Errorf("%s runs programs of another version, whose reasons have other numbers: "+
		"start or attach it again with this one", i.Name())
}

// Ports reads the counters of all interfaces ever served; reasons that were never given are left
// out.
func (i *Instance) Ports() ([]stats.Port, error) {
	if err := i.sameReasons(); err != nil {
		return nil, err
	}
	attached := i.Attached()
	var all []stats.Port
	for _, name := range slices.Sorted(maps.Keys(i.meta.Ports)) {
		p := stats.Port{
			Interface: name,
			Attached:  slices.Contains(attached, name),
			Reasons:   []stats.Reason{},
		}
		slot := i.meta.Ports[name]
		for n := range 2 * bpfobj.ReasonCount {
			r := Reasons()[n%bpfobj.ReasonCount]
			if r.Name == "" {
				continue
			}
			c, err := i.counter(slot*2*bpfobj.ReasonCount + n)
			if err != nil {
				return nil, err
			}
			if c.Packets == 0 {
				continue
			}
			p.Reasons = append(p.Reasons, stats.Reason{
				Name:    r.Name,
				Verdict: string(r.Verdict),
				Limited: n >= bpfobj.ReasonCount,
				Text:    r.Text,
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

func (i *Instance) counter(index int) (sum bpfobj.PipelineCounter, err error) {
	var values []bpfobj.PipelineCounter
	if err := i.maps[bpfobj.PipelineMapCounters].Lookup(uint32(index), &values); err != nil {
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
		var values []bpfobj.PipelineScionCounters
		slot := uint32(i.meta.Counters[l.Name])
		if err := i.maps[bpfobj.PipelineMapScionTraffic].Lookup(slot, &values); err != nil {
			return nil, fmt.Errorf("reading the counters of link %s: %w", l.Name, err)
		}
		for _, v := range values {
			addLinkCounters(&all[n], &v)
		}
	}
	return all, nil
}

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
