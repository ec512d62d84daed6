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

// RuleCount holds what a rule has counted since it was added.
type RuleCount struct {
	Name string
	// Matched counts the packets that matched the rule, Over those of them that were over its rate.
	Matched, Over Traffic
}

// Counters are the counters of a filter.
type Counters struct {
	// Short counts packets that end before a byte that a rule's expression reads. The expression does not match them.
	Short Traffic
	// Malformed counts packets whose IP header contradicts itself or the frame. They are in no set, and have no address for
	// a limit. They are only counted while a rule, a service or top needs addresses.
	Malformed Traffic
	// Rules holds the counts of all rules, in their order.
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
	read := func(counter int, to *Traffic) {
		if err == nil {
			*to, err = readCount(m, counter)
		}
	}
	read(counterShort, &c.Short)
	read(counterMalformed, &c.Malformed)
	for _, r := range p.state.Filter.Rules {
		n, ok := p.state.Rules[r.Name]
		if !ok {
			continue
		}
		rc := RuleCount{Name: r.Name}
		read(counterRules+2*n, &rc.Matched)
		read(counterRules+2*n+1, &rc.Over)
		c.Rules = append(c.Rules, rc)
	}
	return c, err
}

// readCount returns a counter, added up over all CPUs.
func readCount(m *ebpf.Map, counter int) (sum Traffic, err error) {
	var values []bpfobj.PipelineCounter
	if err := m.Lookup(uint32(counter), &values); err != nil {
		return sum, fmt.Errorf("reading counter %d of the filter: %w", counter, err)
	}
	for _, v := range values {
		sum.Packets += v.Packets
		sum.Bytes += v.Bytes
	}
	return sum, nil
}
