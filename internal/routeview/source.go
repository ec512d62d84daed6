// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"net"

	"culvert/internal/datapath"
)

// source follows route_source4 of bpf/route_source.h. It returns nil for a source that passes, or whose way back the
// program asks the kernel for: the kernel then judges by the same.
func (v *view) source(q query, in datapath.RouteDev, current bool) (*decision, error) {
	own, err := v.inst.RouteOwn4(q.from)
	full := v.state.Policy.FullCheck4
	switch {
	case err != nil:
		return nil, err
	case own:
		return &decision{verdict: "punt", reason: "route-martian", why: "from an address of this host, to the kernel"}, nil
	case in.RPFilter == 0 && !full:
		return nil, nil
	case in.RPFilter != 0 && full:
		return &decision{verdict: "pass", reason: "route-kernel",
			why: "to the kernel, because rp_filter and policy rules or local routes come together"}, nil
	}
	refusal := &decision{verdict: "punt", reason: "route-source", why: "to the kernel, because the way back to " +
		q.from.String() + " is not as rp_filter wants it"}
	if !current {
		return nil, nil
	}
	// The program looks in the table only: a neighbour of its own need not be known.
	t := v.tables[false]
	if t == nil {
		return nil, nil
	}
	number, _, _ := t.reader.Lookup(q.from)
	hop, err := v.hop(number)
	if err != nil {
		return nil, err
	}
	switch hop.Action {
	case datapath.RouteAsk:
		return nil, nil
	case datapath.RouteForward, datapath.RouteConnected, datapath.RouteResolve, datapath.RouteElsewhere:
		if in.RPFilter == 1 && hop.Dev != q.in {
			return refusal, nil
		}
		return nil, nil
	}
	return refusal, nil
}

func hardware(mac [6]byte) string { return net.HardwareAddr(mac[:]).String() }
