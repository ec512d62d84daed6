// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"net"
	"net/netip"

	"culvert/internal/route/routeplane"
)

// source checks an IPv4 source as route_source4 and route_way_back of bpf/route/source.h do. It returns nil for a source
// that passes.
func (v *view) source(q query, in routeplane.Dev, current bool, k *kernel) (*decision, error) {
	own, err := v.plane.Own4(q.from)
	full := v.state.Policy.FullCheck4
	switch {
	case err != nil:
		return nil, err
	case own && full:
		return &decision{verdict: "pass", reason: "route-kernel",
			why: "from an address of this host, to the kernel, because there are policy rules or local routes"}, nil
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
	hop := routeplane.Hop{Action: routeplane.Ask}
	if t := v.tables[false]; current && t != nil {
		// The program looks only in the table: the source need not be a known neighbor.
		number, _, _ := t.reader.Lookup(q.from)
		if hop, err = v.hop(number); err != nil {
			return nil, err
		}
	}
	back := hop.Dev
	unsure := *refusal
	unsure.verdict, unsure.reason = "pass", "route-kernel"
	switch hop.Action {
	case routeplane.Forward, routeplane.Connected, routeplane.Resolve, routeplane.Elsewhere:
	case routeplane.Ask:
		r, err := k.ask(q.from, netip.Addr{}, 0)
		switch {
		case err != nil:
			return nil, err
		case r.kind != unicast || r.tunnel:
			return &unsure, nil
		case r.several: // which one is not known
			return nil, nil
		}
		back, refusal = r.dev, &unsure
	default:
		return refusal, nil
	}
	if in.RPFilter == 1 && back != q.in {
		return refusal, nil
	}
	return nil, nil
}

func hardware(mac [6]byte) string { return net.HardwareAddr(mac[:]).String() }
