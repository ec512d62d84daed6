// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"fmt"
	"net/netip"
	"time"

	"culvert/internal/capture/trace"
	"culvert/internal/datapath"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
)

// explainer says what the load balancer does with a packet, as Explain does for a flow.
type explainer struct {
	*view
	known map[lbplane.VIPKey]lbplane.VIP
	// unclaimed is set for the stage that is asked about packets to the address of a VIP which are no VIP's. Others are asked
	// before it.
	unclaimed bool
}

// NewExplainer returns an explainer for packets to VIPs. NewUnclaimedExplainer returns one for those to the addresses of VIPs that
// belong to none. The stages between the two are asked first.
func NewExplainer() trace.Explainer { return &explainer{} }

// NewUnclaimedExplainer is described with NewExplainer.
func NewUnclaimedExplainer() trace.Explainer { return &explainer{unclaimed: true} }

// Stage implements trace.Explainer.
func (e *explainer) Stage() string { return lbplane.Stage }

// Close implements trace.Explainer.
func (e *explainer) Close() {}

// Follow implements trace.Explainer.
func (e *explainer) Follow(inst *datapath.Instance) (on bool, err error) {
	if lbplane.OptionsOf(inst) == nil {
		return false, nil
	}
	if e.view, err = newView(inst); err != nil {
		return false, err
	}
	e.known, err = e.plane.VIPs()
	return err == nil && !(e.unclaimed && e.plane.Options().Unclaimed == lbplane.Pass), err
}

// Explain implements trace.Explainer.
func (e *explainer) Explain(p *trace.Packet) (trace.Step, error) {
	if !e.hasAddress(p.Dst) {
		if e.unclaimed {
			return trace.Step{}, nil // it has been said before
		}
		return trace.On("goes on: no VIP has the address " + p.Dst.String()), nil
	}
	switch {
	case p.VLAN != 0:
		return trace.Unsure(fmt.Sprintf("in VLAN %d, to the address of a VIP: what happens on a VLAN is not worked out afterwards", p.VLAN)), nil
	case !p.Ports:
		return trace.Unsure("to the address of a VIP, but no TCP or UDP packet in one piece: such ones (ICMP, fragments, options) are not worked out afterwards"), nil
	}
	to := lb.Service{Addr: p.Dst, Port: p.DstPort, Protocol: lb.Protocol(p.Protocol)}
	out := &Explanation{Router: e.inst.Name(), Client: p.From().String(), Service: to.String()}
	e.match(out, to, e.known)
	var err error
	switch {
	case out.VIP == "" && !e.unclaimed:
		return trace.On(fmt.Sprintf("goes on: %s has a VIP, but none of %s", p.Dst, to)), nil
	case out.VIP == "":
		err = e.view.unclaimed(out, to, p.From(), p.Name)
	case e.unclaimed:
		return trace.Step{}, nil
	default:
		err = e.follow(out, to, p.From(), p.Name)
	}
	if err != nil {
		return trace.Step{}, err
	}
	return out.step(p), nil
}

// hasAddress tells whether a VIP has an address.
func (e *explainer) hasAddress(a netip.Addr) bool {
	for key := range e.known {
		if key.Addr == a {
			return true
		}
	}
	return false
}

// step returns the explanation of a flow as that of one of its packets.
func (e *Explanation) step(p *trace.Packet) trace.Step {
	s := trace.Step{Text: e.Text, Verdict: e.Verdict, Reason: e.Reason}
	if e.Reason == reasonKnown {
		s.Before = reasonNew // the packet itself may have made the entry
	}
	if e.VIP != "" {
		s.Add("VIP " + e.vip())
		s.Add("flow table: " + e.Flow.String())
		s.Add("ring: " + e.Ring.String())
	}
	if b := e.Backend; b != nil {
		s.Add("backend " + b.line(time.Now()))
		s.Add("packets go " + e.packets())
		hop := "not resolved"
		if b.NextHop != nil {
			hop = fmt.Sprintf("%s  MTU %d: packets of up to %d bytes fit", b.NextHop, b.NextHop.MTU, e.Fits)
		}
		s.Add("next hop " + hop)
		if e.Reason != reasonHop && p.IPLength > e.Fits {
			s.Verdict, s.Reason, s.Before = "", reasonTooBig, ""
			s.Text = fmt.Sprintf("does not fit: it has %d bytes", p.IPLength)
		}
	}
	if e.ServerID > 0 && p.Protocol == trace.UDP {
		s.Unsure = true
		s.Add("a QUIC packet whose connection ID names a backend goes to that one (lb-quic)")
	}
	return s
}

const reasonTooBig = "lb-too-big"
