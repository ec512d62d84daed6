// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"slices"

	"culvert/internal/datapath"
	"culvert/internal/lb/bgpstate"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/peerstate"
	"culvert/internal/lb/sourcestate"
)

// counts holds what the metrics of a load balancer tell.
type counts struct {
	VIPs    []vipCounts
	Options lbplane.Options
	// Flows is an estimate of the number of flows in the flow table, and Memory its size in bytes.
	Flows, Memory uint64
	// BGP tells whether the process has BGP sessions, and Sessions has their states.
	BGP      bool
	Sessions []bgpstate.Session
	// Peers is the state of the exchange of flows, nil without one.
	Peers *peerstate.State
	// Sources has the states of the sources of backends.
	Sources []sourcestate.Source
}

// vipCounts holds the counters of a VIP.
type vipCounts struct {
	// Name has address, port and protocol: "192.0.2.1:80/tcp".
	Name string
	// Served is set if the load balancer is on an interface and a backend takes new flows of the VIP.
	Served bool
	// Announced is the number of neighbors to which the VIP's address is announced.
	Announced int
	Events    lbplane.Events
	Backends  []backendCounts
}

// backendCounts holds the counters of a backend of a VIP.
type backendCounts struct {
	Addr string
	lbplane.Traffic
	// Weight is the weight by which it gets new flows, 0 if it is drained.
	Weight uint32
	// State is that of its checks, or stateUnchecked or stateDetached.
	State            string
	Checks, Failures uint64
	// Resolved is set if its next hop is known.
	Resolved bool
}

// States of backends in metrics, besides those of lbplane.HealthState.
const (
	// stateUnchecked is the state of a backend of a VIP without a check.
	stateUnchecked = "unchecked"
	// stateDetached is the state of a backend while no interface carries the load balancer.
	stateDetached = "detached"
)

// count returns the counters of the load balancer of a data plane, nil if it is off there.
func count(inst *datapath.Instance) (*counts, error) {
	if lbplane.OptionsOf(inst) == nil {
		return nil, nil
	}
	p, err := lbplane.View(inst)
	if err != nil {
		return nil, err
	}
	state, err := Load(p)
	if err != nil {
		return nil, err
	}
	known, err := p.VIPs()
	if err != nil {
		return nil, err
	}
	out := &counts{Options: p.Options(), Memory: lbplane.Memory(inst)}
	if out.Flows, err = p.FlowEstimate(); err != nil {
		return nil, err
	}
	if out.Sessions, _, err = bgpstate.Of(inst); err != nil {
		return nil, err
	}
	if out.Peers, err = peerstate.Of(inst); err != nil {
		return nil, err
	}
	if out.Sources, _, err = sourcestate.Of(inst); err != nil {
		return nil, err
	}
	out.BGP = len(out.Sessions) > 0
	nowhere := !inst.Temporary() && len(inst.Attached()) == 0
	slices.SortFunc(state.VIPs, func(a, b VIP) int { return a.Service.Compare(b.Service) })
	for _, v := range state.VIPs {
		vip, has := known[v.Service.Key()]
		c := vipCounts{Name: v.Service.String(), Served: has && !vip.Empty && !nowhere, Announced: len(bgpstate.AnnouncedTo(out.Sessions, v.Service.Addr))}
		if c.Events, err = p.Events(v.Number); err != nil {
			return nil, err
		}
		for _, b := range v.Backends {
			one, err := countBackend(p, v.Check != nil, nowhere, &b)
			if err != nil {
				return nil, err
			}
			c.Backends = append(c.Backends, one)
		}
		out.VIPs = append(out.VIPs, c)
	}
	return out, nil
}

func countBackend(p *lbplane.Plane, checked, nowhere bool, b *Backend) (c backendCounts, err error) {
	c = backendCounts{Addr: b.Addr.String(), Weight: b.Share()}
	if c.Traffic, err = p.Traffic(b.ID.Number()); err != nil {
		return c, err
	}
	in, err := p.Backend(b.ID.Number())
	if err != nil {
		return c, err
	}
	c.Resolved = in.Used && in.ID == b.ID && in.Hop.Port != 0
	health, err := p.Health(b.ID.Number())
	if err != nil {
		return c, err
	}
	if health.Backend != b.ID {
		health = lbplane.Health{}
	}
	c.Checks, c.Failures = health.Checks, health.Failures
	switch {
	case nowhere:
		c.State = stateDetached
	case !checked:
		c.State = stateUnchecked
	default:
		c.State = health.State.String()
	}
	return c, nil
}
