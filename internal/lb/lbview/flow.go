// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"fmt"
	"net/netip"

	"culvert/internal/datapath"
	"culvert/internal/lb"
)

// FlowOf explains which backend a flow gets on a data plane, nil if that has no load balancer.
func FlowOf(inst *datapath.Instance, to lb.Service, client netip.AddrPort) (*Explanation, error) {
	if !kind.Is(inst) {
		return nil, nil
	}
	v, err := newView(inst)
	if err != nil {
		return nil, err
	}
	return v.explain(to, client, "")
}

// Lines says the same in lines that are equal on load balancers that do the same: without times and neighbors.
func (e *Explanation) Lines() []string {
	if e.VIP == "" {
		return nil
	}
	lines := []string{"VIP " + e.VIP + ": " + e.Text}
	if e.Flow != nil {
		who := e.Flow.Backend
		if who == "" {
			who = "a backend that has gone"
		}
		line := "flow table: " + who
		if !e.Flow.Counts {
			line += ", does not count: " + e.Flow.Why
		}
		lines = append(lines, line)
	}
	return append(lines, fmt.Sprintf("ring: %s", e.Ring))
}
