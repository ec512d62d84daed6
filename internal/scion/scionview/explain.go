// SPDX-License-Identifier: Apache-2.0

// Package scionview shows what the SCION router does with a packet.
package scionview

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/scionproto/scion/pkg/addr"

	"culvert/internal/capture/trace"
	"culvert/internal/datapath"
	"culvert/internal/scion/scionplane"
)

// explainer says what the SCION router does with a packet, in the order of the programs' checks (bpf/scion/stage.h).
type explainer struct {
	plane  scionplane.Plane
	config scionplane.Config
	links  []scionplane.LinkState
}

// NewExplainer returns an explainer for the SCION router of a data plane.
func NewExplainer() trace.Explainer { return &explainer{} }

// Stage implements trace.Explainer.
func (e *explainer) Stage() string { return scionplane.Stage }

// Close implements trace.Explainer.
func (e *explainer) Close() {}

// Follow implements trace.Explainer.
func (e *explainer) Follow(inst *datapath.Instance) (on bool, err error) {
	e.plane = scionplane.Of(inst)
	if e.config = e.plane.Config(); len(e.config.Links) == 0 {
		return false, nil
	}
	e.links, err = e.plane.LinkStates()
	return err == nil, err
}

// Explain implements trace.Explainer.
func (e *explainer) Explain(p *trace.Packet) (trace.Step, error) {
	if !p.UDP {
		return trace.On("goes on: no plain UDP"), nil
	}
	n, ok := e.ingress(p)
	if !ok {
		return trace.On(fmt.Sprintf("goes on: %s > %s is no link's", p.From(), p.To())), nil
	}
	w := &walk{explainer: e, packet: p, in: n}
	w.step.Add("came in by " + e.linkText(n))
	refused, err := e.plane.Refuses(n, p.Ingress)
	if err != nil {
		return w.step, err
	}
	if refused {
		return w.drop("scion-interface", "dropped: datagrams of this link must not come in by "+p.Name), nil
	}
	err = w.decide()
	return w.step, err
}

// ingress returns the index of the link that a datagram belongs to (scion_find_ingress).
func (e *explainer) ingress(p *trace.Packet) (int, bool) {
	for n, l := range e.config.Links {
		if l.Scope != scionplane.ScopeInternal && l.Remote == p.From() && l.Local == p.To() {
			return n, true
		}
	}
	return 0, e.config.Links[0].Local == p.To() && !martian(p.Src, p.Dst)
}

// martian tells whether a source is one that Linux never accepts (scion_martian).
func martian(src, own netip.Addr) bool {
	if src.Is4() {
		b := src.As4()
		return b[0] == 0 || b[0] == 127 || b[0] >= 224 || src == own
	}
	return src.IsMulticast() || src.IsLoopback() || src.Is4In6()
}

// linkText describes a link.
func (e *explainer) linkText(n int) string {
	l := e.config.Links[n]
	switch l.Scope {
	case scionplane.ScopeExternal:
		return fmt.Sprintf("the link of interface %d to %s", l.IfID, addr.IA(l.NeighborIA))
	case scionplane.ScopeSibling:
		return "the link to the sibling " + l.Remote.String()
	}
	return "the internal link, from a host of the AS"
}

// hopText describes a next hop.
func hopText(nh scionplane.NextHop) string {
	name := fmt.Sprintf("index %d", nh.IfIndex)
	if dev, err := net.InterfaceByIndex(nh.IfIndex); err == nil {
		name = dev.Name
	}
	return fmt.Sprintf("%s dev %s MTU %d", net.HardwareAddr(nh.DstMAC[:]), name, nh.MTU)
}
