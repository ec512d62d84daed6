// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"io"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/nexthop"
	"culvert/internal/lb"
	"culvert/internal/lb/bgpstate"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/peerstate"
	"culvert/internal/lb/sourcestate"
	"culvert/internal/show"
)

// ShowOptions are options of Show.
type ShowOptions struct {
	// On is the name of the data plane, "" for the only load balancer here.
	On string
	// Service is the only VIP to show, nil for all.
	Service *lb.Service
	// Flows counts the flows in the flow table, which takes about a second for ten million flows.
	Flows bool
	JSON  bool
}

// Show writes the VIPs and their backends.
func Show(o ShowOptions, out io.Writer) error {
	return with(o.On, func(v *view) error {
		if o.Service != nil {
			vip, _, err := v.find(*o.Service)
			if err != nil {
				return err
			}
			v.state.VIPs = []lb.VIP{*vip}
		}
		r, err := v.report(o.Flows)
		if err != nil {
			return err
		}
		if o.JSON {
			return show.JSON(out, r)
		}
		return show.Lines(out, r.lines(time.Now()))
	})
}

// ReportOf describes the load balancer of a data plane, nil if it is off.
func ReportOf(inst *datapath.Instance) (*Report, error) {
	if lbplane.OptionsOf(inst) == nil {
		return nil, nil
	}
	v, err := newView(inst)
	if err != nil {
		return nil, err
	}
	r, err := v.report(false)
	return &r, err
}

func (v *view) report(countFlows bool) (r Report, err error) {
	r = Report{
		Router: v.inst.Name(), NetNS: v.inst.NetNS(), Interfaces: append([]string{}, v.inst.Attached()...), Served: v.inst.Served(),
		RingSize: v.plane.Options().RingSize, SeedID: v.plane.Options().SeedID(), VIPs: []VIP{},
	}
	r.FlowTable = FlowTable{Flows: v.plane.Options().Flows, Memory: lbplane.Memory(v.inst)}
	if r.FlowTable.Used, err = v.plane.FlowEstimate(); err != nil {
		return r, err
	}
	known, err := v.plane.VIPs()
	if err != nil {
		return r, err
	}
	var open map[lbplane.BackendID]uint64
	if countFlows {
		if open, err = v.plane.FlowCounts(); err != nil {
			return r, err
		}
	}
	if r.BGP, r.BGPKnown, err = bgpstate.Of(v.inst); err != nil {
		return r, err
	}
	if r.BGP == nil { // in JSON a list all the same
		r.BGP = []bgpstate.Session{}
	}
	if r.Peers, err = peerstate.Of(v.inst); err != nil {
		return r, err
	}
	sources, _, err := sourcestate.Of(v.inst)
	if err != nil {
		return r, err
	}
	for _, vip := range v.state.VIPs {
		out, err := v.vip(vip, known[vip.Service.Key()], open)
		if err != nil {
			return r, err
		}
		out.AnnouncedTo = bgpstate.AnnouncedTo(r.BGP, vip.Service.Addr)
		for _, s := range sources {
			if s.VIP == out.Service {
				out.Sources = append(out.Sources, s)
			}
		}
		r.VIPs = append(r.VIPs, out)
	}
	return r, nil
}

func (v *view) vip(vip lb.VIP, known lbplane.VIP, open map[lbplane.BackendID]uint64) (out VIP, err error) {
	out = VIP{
		Service: vip.Service.String(), Hash: vip.Hash, OnFailure: vip.OnFailure, Encap: vip.Encap, ServerID: vip.ServerID,
		Check: vip.Check, From: from(vip.File), State: vipState(vip, known.Empty), Backends: []Backend{},
	}
	out.Announce = out.State == Active && v.inst.Served()
	if out.Events, err = v.plane.Events(vip.Number); err != nil {
		return out, err
	}
	positions := make(map[lbplane.BackendID]int)
	if !known.Empty {
		ring, err := v.plane.Ring(vip.Number)
		if err != nil {
			return out, err
		}
		for _, id := range ring {
			positions[id]++
		}
	}
	if open != nil {
		out.Open = new(uint64)
	}
	for _, b := range vip.Backends {
		backend, err := v.backend(b, vip.Check != nil)
		if err != nil {
			return out, err
		}
		backend.Share = 100 * float64(positions[b.ID]) / float64(v.plane.Options().RingSize)
		if open != nil {
			n := open[b.ID]
			backend.Open = &n
			*out.Open += n
		}
		out.Packets += backend.Packets
		out.Bytes += backend.Bytes
		out.Traffic.Flows += backend.Traffic.Flows
		out.Backends = append(out.Backends, backend)
	}
	return out, nil
}

// vipState returns the state of a VIP. empty is set if the data plane has no backend for new flows.
func vipState(vip lb.VIP, empty bool) string {
	weight := uint32(0)
	for _, b := range vip.Backends {
		weight = max(weight, b.Share())
	}
	switch {
	case vip.Drained:
		return Drained
	case weight == 0:
		return NoBackend
	case empty:
		return Down
	}
	return Active
}

func (v *view) backend(b lb.Backend, checked bool) (out Backend, err error) {
	out = Backend{
		Addr: b.Addr.String(), Encap: b.Encap, GUEPort: b.GUEPort, Weight: b.Weight, Drained: b.Drained, ServerID: b.ServerID,
		From: fromOf(b), OfferedBy: b.Offered,
	}
	backend, err := v.plane.Backend(b.ID.Number())
	if err != nil {
		return out, err
	}
	if !backend.Used || backend.ID != b.ID {
		backend = lbplane.Backend{}
	}
	out.NextHop, out.Problem = newHop(backend.Hop, v.inst.Here()), problem(backend)
	if out.Problem == problemHop && v.inst.Here() {
		out.Obstacle = nexthop.Obstacle(b.Addr, v.inst.Generic())
	}
	if hasSource(backend) && backend.Source.IsValid() {
		out.Source = backend.Source.String()
		if backend.Source.IsSingleIP() {
			out.Source = backend.Source.Addr().String()
		}
	}
	sum, err := v.plane.Traffic(b.ID.Number())
	if err != nil {
		return out, err
	}
	out.Traffic = Traffic(sum)
	out.Health, err = v.health(b.ID, checked)
	return out, err
}

// health returns the result of the health checks of a backend. Without a check that is "unknown", whatever earlier checks found.
func (v *view) health(id lbplane.BackendID, checked bool) (Health, error) {
	h, err := v.plane.Health(id.Number())
	if err != nil {
		return Health{}, err
	}
	out := Health{State: lbplane.Unknown.String()}
	if !checked || h.Backend != id {
		return out, nil
	}
	out = Health{State: h.State.String(), Checks: h.Checks, Failures: h.Failures, Why: h.Text}
	if !h.Since.IsZero() {
		since := h.Since.UTC()
		out.Since = &since
	}
	return out, nil
}
