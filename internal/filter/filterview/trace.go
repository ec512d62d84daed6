// SPDX-License-Identifier: Apache-2.0

package filterview

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	"culvert/internal/capture/trace"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/show/text"
)

// explainer says what the filter in force does with a packet. It runs the packet through the rules as 'culvert filter test' does.
type explainer struct {
	filter filterplane.Filter
	tester *filterplane.Tester // nil before the first filter
}

// NewExplainer returns an explainer for the filter of a data plane.
func NewExplainer() trace.Explainer { return &explainer{} }

// Stage implements trace.Explainer.
func (e *explainer) Stage() string { return filterplane.Stage }

// Close implements trace.Explainer.
func (e *explainer) Close() {
	if e.tester != nil {
		e.tester.Close()
		e.tester = nil
	}
}

// Follow implements trace.Explainer. Rules are loaded again only if they have changed. Members of sets are always those in force.
func (e *explainer) Follow(inst *datapath.Instance) (bool, error) {
	f, err := filterplane.Read(inst)
	if err != nil || len(f.Rules)+len(f.Services) == 0 {
		e.Close()
		return false, err
	}
	if e.tester != nil && reflect.DeepEqual(f, e.filter) {
		return true, nil
	}
	t, err := filterplane.NewTester(inst, f)
	if err != nil {
		return false, err
	}
	e.Close()
	e.filter, e.tester = f, t
	return true, nil
}

// Reasons as the programs count them.
const (
	reasonRule    = "filter"
	reasonLimit   = "filter-limit"
	reasonSYN     = "filter-synack"
	reasonCookie  = "filter-cookie"
	protectedText = "to the protected service %s: answered with a cookie if it is a SYN (" + reasonSYN +
		"), dropped without one of ours (" + reasonCookie + "), and goes on if it is of a connection"
)

// Explain implements trace.Explainer.
func (e *explainer) Explain(p *trace.Packet) (trace.Step, error) {
	v, err := e.tester.Run(p.Data, p.Name)
	if err != nil {
		return trace.Step{}, err
	}
	return e.step(p, v), nil
}

// step puts a verdict of the rules in words.
func (e *explainer) step(p *trace.Packet, v filterplane.Verdict) trace.Step {
	s := trace.On("goes on: none of " + text.Count(uint64(len(e.filter.Rules)), "rule") + " decides")
	switch len(e.filter.Rules) {
	case 0:
		s = trace.On("goes on: no rules")
	case 1:
		s = trace.On("goes on: its rule does not decide")
	}
	switch {
	case v.Reason != "":
		s = trace.Ends(datapath.VerdictDrop, v.Reason, "dropped before any rule sees it")
	case v.Action == filterplane.Drop:
		s = trace.Ends(datapath.VerdictDrop, reasonRule, "dropped by rule "+v.Rule)
	case v.Rule != "":
		s = trace.On("goes on, by rule " + v.Rule)
	}
	for _, name := range v.Matched {
		for _, r := range e.filter.Rules {
			if r.Name != name {
				continue
			}
			s.Add("matches rule " + name + ": " + describe(r).Words)
			if r.Action == filterplane.Limit && s.Reason == "" {
				s.Unsure, s.Text = true, s.Text+fmt.Sprintf(", unless it was over the rate of rule %s (%s)", name, reasonLimit)
			}
		}
	}
	if service, ok := e.protected(p); ok && s.Reason == "" {
		s.Unsure, s.Text = true, s.Text+", unless the protection of "+service.String()+" takes it"
		s.Add(fmt.Sprintf(protectedText, service))
	}
	var odd []string
	if v.Short {
		odd = append(odd, "ends before a byte that a rule reads")
	}
	if v.Malformed {
		odd = append(odd, "malformed, and in no set")
	}
	if p.Cut() {
		odd = append(odd, fmt.Sprintf("judged by %d of %d bytes: rules that read the rest, or lengths, may decide otherwise", len(p.Data), p.Length))
	}
	if len(odd) > 0 {
		s.Add(strings.Join(odd, "; "))
	}
	return s
}

// protected returns the protected service that a packet is to.
func (e *explainer) protected(p *trace.Packet) (netip.AddrPort, bool) {
	if !p.Ports || p.Protocol != trace.TCP {
		return netip.AddrPort{}, false
	}
	for _, service := range e.filter.Protected() {
		if service == p.To() {
			return service, true
		}
	}
	return netip.AddrPort{}, false
}
