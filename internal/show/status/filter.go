// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"

	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterview"
	"culvert/internal/show/text"
	"culvert/internal/stats"
)

// Filter sums up the packet filter of a data plane. 'culvert filter list' has more.
type Filter struct {
	Rules    int `json:"rules"`
	Sets     int `json:"sets"`
	Services int `json:"services"`
	// Packets and Bytes are what the filter has dropped, also by rules that were deleted since: the sum over its reasons.
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
	r.Filter = &Filter{Rules: len(f.Rules), Sets: len(f.Sets), Services: len(f.Services)}
	for _, i := range r.Interfaces {
		r.Filter.add(i.Reasons)
	}
	return nil
}

// add adds what the filter has dropped, given the reasons of an interface.
func (f *Filter) add(reasons []stats.Reason) {
	for _, reason := range reasons {
		if reason.Verdict == "drop" && (reason.Name == "filter" || strings.HasPrefix(reason.Name, "filter-")) {
			f.Packets += reason.Packets
			f.Bytes += reason.Bytes
		}
	}
}

func (f *Filter) line() string {
	return "  filter  " + filterview.Summary(f.Rules, f.Sets, f.Services) + "  dropped " + text.Grouped(f.Packets) + " packets, " +
		text.ShortBytes(f.Bytes)
}
