// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"fmt"

	"culvert/internal/capture/trace"
	"culvert/internal/datapath"
	"culvert/internal/route/routeplane"
)

// explainer says what the IP router does with a packet, as 'culvert route get' does for a destination.
type explainer struct {
	view   *view
	kernel *kernel
}

// NewExplainer returns an explainer for the IP router of a data plane. It has to be called in the network namespace of the data
// plane.
func NewExplainer() trace.Explainer { return &explainer{} }

// Stage implements trace.Explainer.
func (e *explainer) Stage() string { return routeplane.Stage }

// Close implements trace.Explainer.
func (e *explainer) Close() {
	if e.view != nil {
		e.view.close()
		e.view = nil
	}
	if e.kernel != nil {
		e.kernel.close()
		e.kernel = nil
	}
}

// Follow implements trace.Explainer.
func (e *explainer) Follow(inst *datapath.Instance) (on bool, err error) {
	e.Close()
	if routeplane.OptionsOf(inst) == nil {
		return false, nil
	}
	if e.view, err = newView(inst); err != nil {
		return false, err
	}
	e.view.patience = 0 // packets wait meanwhile
	if e.kernel, err = newKernel(); err != nil {
		e.Close()
		return false, err
	}
	return true, nil
}

// Explain implements trace.Explainer.
func (e *explainer) Explain(p *trace.Packet) (trace.Step, error) {
	if p.IP == 0 {
		return trace.On("goes on: no IP packet"), nil
	}
	q := query{to: p.Dst, from: p.Src, in: e.device(p)}
	if q.in == 0 {
		return trace.Ends(datapath.VerdictPass, "route-off", fmt.Sprintf("to the kernel: %s has no device of VLAN %d", p.Name, p.VLAN)), nil
	}
	d, answer, err := e.view.decide(q, e.kernel)
	if err != nil {
		return trace.Step{}, err
	}
	d = d.ofPacket(p)
	s := trace.Step{Verdict: d.verdict, Reason: d.reason, Text: d.why}
	if d.once && d.reason == "route" {
		s.Before = "route-fib"
	}
	if d.mirrored || d.asked {
		s.Add("kernel: " + e.kernel.text(answer))
	}
	if d.hop.Action == routeplane.Forward && d.hop.MTU != 0 {
		s.Add(fmt.Sprintf("MTU %d, the packet has %d bytes and TTL %d", d.hop.MTU, p.IPLength, p.TTL))
	}
	return s, nil
}

// device returns the index of the device by which a packet comes in for the kernel, 0 for none.
func (e *explainer) device(p *trace.Packet) int {
	if p.VLAN == 0 {
		return p.Ingress
	}
	for index, dev := range e.view.devs {
		if dev.Port == p.Ingress && dev.VLAN&0xfff == p.VLAN && dev.VLAN != 0 {
			return index
		}
	}
	return 0
}

// Types of ICMPv6 that are neighbor discovery (RFC 4861).
const (
	firstDiscovery = 133
	lastDiscovery  = 137
)

// ofPacket returns the decision on a packet, which decide takes for a plain one: within the MTU, with hops left, without options
// (route and route_find of bpf/route/stage.h).
func (d decision) ofPacket(p *trace.Packet) decision {
	instead := func(verdict, reason, why string) decision {
		d.verdict, d.reason, d.why = verdict, reason, why
		return d
	}
	switch {
	case d.reason == "" || d.reason == "route-off" || d.reason == "route-kernel" && !d.mirrored && !d.asked:
		return d
	case p.NoForward && d.reason == "route-local" && (d.mirrored || p.Dst.IsMulticast()):
		return d
	case p.NoForward && p.Options && p.IP == 4 && p.Dst.IsMulticast():
		return instead("pass", "route-local", "IPv4 multicast with options, to the kernel")
	case p.NoForward && p.Options:
		return instead("punt", "route-options", "it has options, to the kernel")
	case p.NoForward:
		return instead("punt", "route-malformed", "its header is malformed or cut off, to the kernel")
	case p.IP == 6 && p.Protocol == trace.ICMPv6 && discovery(p):
		return instead("pass", "route-kernel", "neighbor discovery, to the kernel")
	case d.hop.Action != routeplane.Forward || d.reason != "route" && d.reason != "route-fib" && d.reason != "route-redirect":
		return d
	case p.TTL <= 1:
		return instead("punt", "route-ttl", "its TTL is used up, to the kernel: would "+d.why)
	case d.hop.MTU != 0 && p.IPLength > int(d.hop.MTU):
		return instead("punt", "route-mtu", fmt.Sprintf("longer than the MTU of %d, to the kernel: would ", d.hop.MTU)+d.why)
	}
	return d
}

func discovery(p *trace.Packet) bool {
	at := p.L3 + 40
	return at >= len(p.Data) || p.Data[at] >= firstDiscovery && p.Data[at] <= lastDiscovery
}
