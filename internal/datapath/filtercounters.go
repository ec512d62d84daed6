// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
)

// FilterTraffic counts packets, and the bytes of their frames.
type FilterTraffic struct {
	Packets, Bytes uint64
}

// FilterRuleCount is what a rule has counted since it was made.
type FilterRuleCount struct {
	Name string
	// Matched are the packets that the rule took, Over those of them that were over its rate.
	Matched, Over FilterTraffic
}

// FilterCounters are the counters of a filter.
type FilterCounters struct {
	// Short are packets that ended before what a rule's expression asked for: the expression then does not match.
	Short FilterTraffic
	// Malformed are packets with an IP header that contradicts itself or the frame: no set and no address of a limit
	// knows them. Without anything that looks at addresses they are not counted.
	Malformed FilterTraffic
	// Rules are in their order.
	Rules []FilterRuleCount
}

// FilterCounters reads the counters of the filter.
func (i *Instance) FilterCounters() (FilterCounters, error) {
	p, done, err := i.readFilter()
	if err != nil {
		return FilterCounters{}, err
	}
	defer done()
	return p.counters()
}

func (p *filterPlane) counters() (c FilterCounters, err error) {
	m := p.maps[bpfobj.FilterMapFilterCounts]
	if m == nil {
		return c, nil
	}
	read := func(place int, to *FilterTraffic) {
		if err == nil {
			*to, err = readFilterCount(m, place)
		}
	}
	read(filterPlaceShort, &c.Short)
	read(filterPlaceMalformed, &c.Malformed)
	for _, r := range p.state.Filter.Rules {
		n, ok := p.state.Rules[r.Name]
		if !ok {
			continue
		}
		rc := FilterRuleCount{Name: r.Name}
		read(filterPlaceRules+2*n, &rc.Matched)
		read(filterPlaceRules+2*n+1, &rc.Over)
		c.Rules = append(c.Rules, rc)
	}
	return c, err
}

func readFilterCount(m *ebpf.Map, place int) (sum FilterTraffic, err error) {
	var values []bpfobj.PipelineCounter
	if err := m.Lookup(uint32(place), &values); err != nil {
		return sum, fmt.Errorf("reading counter %d of the filter: %w", place, err)
	}
	for _, v := range values {
		sum.Packets += v.Packets
		sum.Bytes += v.Bytes
	}
	return sum, nil
}
