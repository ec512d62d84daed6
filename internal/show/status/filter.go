// SPDX-License-Identifier: Apache-2.0

package status

import (
	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterview"
	"culvert/internal/show/text"
)

// Filter sums up the packet filter of a data plane. 'culvert filter list' has more.
type Filter struct {
	Rules    int `json:"rules"`
	Sets     int `json:"sets"`
	Services int `json:"services"`
	// Packets and Bytes are what the filter has dropped: what rules with action drop have matched, and what was over the rate
	// of rules with action limit.
	Packets uint64 `json:"dropped_packets"`
	Bytes   uint64 `json:"dropped_bytes"`
}

func (r *Router) describeFilter(inst *datapath.Instance) error {
	f, err := filterplane.Read(inst)
	if err != nil {
		return err
	}
	if len(f.Rules)+len(f.Sets)+len(f.Services) == 0 {
		return nil
	}
	c, err := filterplane.ReadCounters(inst)
	if err != nil {
		return err
	}
	actions := make(map[string]filterplane.Action)
	for _, rule := range f.Rules {
		actions[rule.Name] = rule.Action
	}
	r.Filter = &Filter{Rules: len(f.Rules), Sets: len(f.Sets), Services: len(f.Services)}
	for _, count := range c.Rules {
		dropped := count.Over
		if actions[count.Name] == filterplane.Drop {
			dropped = count.Matched
		}
		r.Filter.Packets += dropped.Packets
		r.Filter.Bytes += dropped.Bytes
	}
	return nil
}

func (f *Filter) line() string {
	return "  filter  " + filterview.Summary(f.Rules, f.Sets, f.Services) + "  dropped " + text.Grouped(f.Packets) + " packets, " +
		text.ShortBytes(f.Bytes)
}
