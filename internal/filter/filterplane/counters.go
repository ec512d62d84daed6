// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// Traffic counts packets, and the bytes of their frames.
type Traffic struct {
	Packets, Bytes uint64
}

// RuleCount is what a rule has counted since it was made.
type RuleCount struct {
	Name string
	// Matched are the packets that the rule took, Over those of them that were over its rate.
	Matched, Over Traffic
}

// Counters are the counters of a filter.
type Counters struct {
	// Short are packets that ended before what a rule's expression asked for: the expression then does not match.
	Short Traffic
	// Malformed are packets with an IP header that contradicts itself or the frame: no set and no address of a limit
	// knows them. Without anything that looks at addresses they are not counted.
	Malformed Traffic
	// Rules are in their order.
	Rules []RuleCount
}

// ReadCounters reads the counters of the filter.
func ReadCounters(inst *datapath.Instance) (Counters, error) {
	p, done, err := read(inst)
	if err != nil {
		return Counters{}, err
	}
	defer done()
	return p.counters()
}

func (p *plane) counters() (c Counters, err error) {
	m := p.maps[bpfobj.FilterMapFilterCounts]
	if m == nil {
		return c, nil
	}
	read := func(place int, to *Traffic) {
		if err == nil {
			*to, err = readCount(m, place)
		}
	}
	read(placeShort, &c.Short)
	read(placeMalformed, &c.Malformed)
	for _, r := range p.state.Filter.Rules {
		n, ok := p.state.Rules[r.Name]
		if !ok {
			continue
		}
		rc := RuleCount{Name: r.Name}
		read(placeRules+2*n, &rc.Matched)
		read(placeRules+2*n+1, &rc.Over)
		c.Rules = append(c.Rules, rc)
	}
	return c, err
}

func readCount(m *ebpf.Map, place int) (sum Traffic, err error) {
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
