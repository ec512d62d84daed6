// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"culvert/internal/cluster"
	"culvert/internal/cluster/lastgood"
	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/lb/bgpstate"
	"culvert/internal/lb/lbview"
	"culvert/internal/stats"
)

// Answer implements agent.Plane.
func (p *clusterPlane) Answer(_ context.Context, q cluster.Ask) (a cluster.Answer) {
	switch q.Kind {
	case cluster.AskCheck:
		return p.wouldRun(q)
	case cluster.AskWhere:
		return p.where(q.Where)
	}
	return cluster.Answer{Errors: []string{fmt.Sprintf("this version of culvert does not know the question %q", q.Kind)}}
}

// wouldRun tells whether the node would run documents, by the same code as a reload.
func (p *clusterPlane) wouldRun(q cluster.Ask) (a cluster.Answer) {
	m := p.cluster
	set := &lastgood.Set{Cluster: m.table.Name, Node: m.table.Node}
	for _, scope := range cluster.ScopesOf(m.table.Node, m.table.Roles) {
		if text, ok := q.Documents[scope.String()]; ok {
			set.Documents = append(set.Documents, lastgood.Document{Scope: scope.String(), Text: []byte(text)})
		}
	}
	r, err := p.ask(p.serving, Request{set: set, DryRun: true})
	for _, one := range config.Sorted(err) {
		a.Errors = append(a.Errors, one.Error())
	}
	if r != nil {
		a.Lines = append(r.Changes, r.Notes...)
	}
	return a
}

// where says what the node has of an address or a VIP, or what it does with a flow.
func (p *clusterPlane) where(text string) (a cluster.Answer) {
	p.changes.RLock()
	defer p.changes.RUnlock()
	inst := p.now.Load().inst
	if inst == nil {
		return cluster.Answer{Errors: []string{errNoPlane.Error()}}
	}
	addr, err := addressIn(text)
	if err != nil {
		return cluster.Answer{Errors: []string{err.Error()}}
	}
	flow, err := flowIn(text)
	if err != nil {
		return cluster.Answer{Errors: []string{err.Error()}}
	}
	w := &cluster.Where{}
	a.Where = w
	fail := func(err error) {
		if err != nil {
			a.Errors = append(a.Errors, err.Error())
		}
	}
	r, err := lbview.ReportOf(inst)
	fail(err)
	if r != nil {
		w.Announced = len(bgpstate.AnnouncedTo(r.BGP, addr)) > 0
		for _, v := range r.VIPs {
			if of, err := addressIn(v.Service); err == nil && of == addr {
				w.VIPs = append(w.VIPs, v.Service)
			}
			for _, b := range v.Backends {
				if b.Addr == addr.String() {
					a.Lines = append(a.Lines, fmt.Sprintf("backend of VIP %s, share %.1f %%", v.Service, b.Share))
				}
			}
		}
	}
	w.Sets, err = setsWith(inst, addr)
	fail(err)
	if w.Announced {
		a.Lines = append(a.Lines, "announced")
	}
	if flow == nil {
		for _, v := range w.VIPs {
			a.Lines = append(a.Lines, "VIP "+v)
		}
		for _, s := range w.Sets {
			a.Lines = append(a.Lines, "in set @"+s)
		}
		return a
	}
	for _, s := range w.Sets {
		a.Lines = append(a.Lines, fmt.Sprintf("%s is in set @%s", addr, s))
	}
	from, err := setsWith(inst, flow.from.Addr())
	fail(err)
	for _, s := range from {
		a.Lines = append(a.Lines, fmt.Sprintf("%s is in set @%s", flow.from.Addr(), s))
		if !slices.Contains(w.Sets, s) {
			w.Sets = append(w.Sets, s)
		}
	}
	flow.answer(inst, &a)
	return a
}

// addressIn returns the address that a question is about: that of a VIP, or the destination of a flow.
func addressIn(text string) (netip.Addr, error) {
	words := strings.Fields(text)
	if len(words) > 1 {
		text = words[1]
	}
	text, _, _ = strings.Cut(text, "/")
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr(), nil
	}
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		return addr, fmt.Errorf("%q is no address, VIP or flow", text)
	}
	return addr, nil
}

// setsWith returns the sets of the filter that an address is in.
func setsWith(inst *datapath.Instance, addr netip.Addr) (names []string, err error) {
	f, err := filterplane.Read(inst)
	if err != nil {
		return nil, err
	}
	now := filterplane.Now()
	for _, s := range f.Sets {
		if s.Endpoints {
			continue
		}
		members, err := filterplane.Prefixes(inst, s.Name)
		if err != nil {
			return names, err
		}
		if members.Has(addr, now) {
			names = append(names, s.Name)
		}
	}
	return names, nil
}

// portCount is what an interface has counted.
type portCount struct{ rx, drop uint64 }

// interfaces returns the rates since the last call.
func (p *clusterPlane) interfaces(ports []stats.Port) (all []cluster.InterfaceState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, counts := time.Now(), make(map[string]portCount)
	seconds := now.Sub(p.counted).Seconds()
	for _, port := range ports {
		var c portCount
		for _, r := range port.Reasons {
			c.rx += r.Packets
			if r.Verdict == "drop" {
				c.drop += r.Packets
			}
		}
		for _, n := range port.Losses {
			c.drop += n
		}
		counts[port.Interface] = c
		if !port.Attached {
			continue
		}
		i := cluster.InterfaceState{Name: port.Interface}
		if before, ok := p.rates[port.Interface]; ok && seconds > 0 && c.rx >= before.rx && c.drop >= before.drop {
			i.RX, i.Drop = uint64(float64(c.rx-before.rx)/seconds), uint64(float64(c.drop-before.drop)/seconds)
		}
		all = append(all, i)
	}
	p.rates, p.counted = counts, now
	slices.SortFunc(all, func(a, b cluster.InterfaceState) int { return strings.Compare(a.Name, b.Name) })
	return all
}
