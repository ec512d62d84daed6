// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
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

// PortCounters are the counters of one interface: every packet that it received is in one of
// Reasons.
type PortCounters struct {
	Interface string
	Attached  bool
	Reasons   []ReasonCounter
	// Losses counts packets that were forwarded by their reason and lost after that.
	Losses map[string]uint64
}

// ReasonCounter counts the packets that left for one reason.
type ReasonCounter struct {
	Reason
	// Limited is set for packets that were to go to the slow path and were dropped by its limit.
	Limited bool
	Packets uint64
	Bytes   uint64
}

// Counters reads the counters of all interfaces ever served, reasons that were never given left
// out.
func (i *Instance) Counters() ([]PortCounters, error) {
	attached := i.Attached()
	var names []string
	for name := range i.meta.Ports {
		names = append(names, name)
	}
	slices.Sort(names)
	var all []PortCounters
	for _, name := range names {
		p := PortCounters{Interface: name, Attached: slices.Contains(attached, name)}
		slot := i.meta.Ports[name]
		for n := range 2 * reasonCount {
			c, err := i.counter(slot*2*reasonCount + n)
			if err != nil {
				return nil, err
			}
			if c.Packets == 0 {
				continue
			}
			p.Reasons = append(p.Reasons, ReasonCounter{
				Reason:  Reasons()[n%reasonCount],
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
		for typ := range v.Out {
			sum.Out[typ][class].Packets += v.Out[typ][class].Packets
			sum.Out[typ][class].Bytes += v.Out[typ][class].Bytes
		}
	}
}
