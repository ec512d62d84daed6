// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterset"
	"culvert/internal/filter/filterstage"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/lbstage"
)

// Undo has what an urgent change has replaced. It is stored as JSON, so that a process that starts can undo what one before has done.
type Undo struct {
	Rules    []RuleWas    `json:"rules,omitempty"`
	Services []ServiceWas `json:"services,omitempty"`
	Sets     []SetWas     `json:"sets,omitempty"`
	VIPs     []VIPWas     `json:"vips,omitempty"`
	Backends []BackendWas `json:"backends,omitempty"`
}

// RuleWas is a rule before a change, nil if there was none. It stood in front of the rule Before, or at the end.
type RuleWas struct {
	Name   string            `json:"name"`
	Was    *filterplane.Rule `json:"was,omitempty"`
	Before string            `json:"before,omitempty"`
}

// ServiceWas is a protected service before a change, nil if there was none.
type ServiceWas struct {
	Addr netip.AddrPort       `json:"addr"`
	Was  *filterplane.Service `json:"was,omitempty"`
}

// SetWas is what a change has done to a set.
type SetWas struct {
	Name      string `json:"name"`
	Endpoints bool   `json:"endpoints,omitempty"`
	// Made says that the change has made the set.
	Made bool `json:"made,omitempty"`
	// Added and Removed are entries.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
}

// VIPWas is a VIP before a change, nil if there was none. Its backends are of weight only if it is gone.
type VIPWas struct {
	Service lb.Service `json:"service"`
	Was     *lb.VIP    `json:"was,omitempty"`
	// Became is what the change has made of it, nil if it is gone. Only what differs is brought back.
	Became *lb.VIP `json:"became,omitempty"`
}

// BackendWas is a backend before a change, nil if there was none.
type BackendWas struct {
	VIP  lb.Service  `json:"vip"`
	Addr netip.Addr  `json:"addr"`
	Was  *lb.Backend `json:"was,omitempty"`
	// Became is what the change has made of it, nil if it is gone. Only what differs is brought back: a configuration that was read
	// since, or another urgent change, may have changed the rest.
	Became *lb.Backend `json:"became,omitempty"`
}

// undo returns what leads from a later shot back to s.
func (s *shot) undo(after *shot) *Undo {
	u := new(Undo)
	for n, r := range s.filter.Rules {
		at := slices.IndexFunc(after.filter.Rules, func(o filterplane.Rule) bool { return o.Name == r.Name })
		if at >= 0 && filter.SameRule(after.filter.Rules[at], r) {
			continue
		}
		was := RuleWas{Name: r.Name, Was: &r}
		if n+1 < len(s.filter.Rules) {
			was.Before = s.filter.Rules[n+1].Name
		}
		u.Rules = append(u.Rules, was)
	}
	for _, r := range after.filter.Rules {
		if !s.rule(r.Name) {
			u.Rules = append(u.Rules, RuleWas{Name: r.Name})
		}
	}
	for _, o := range s.filter.Services {
		if !slices.Contains(after.filter.Services, o) {
			u.Services = append(u.Services, ServiceWas{o.Addr, &o})
		}
	}
	for _, o := range after.filter.Services {
		if !slices.ContainsFunc(s.filter.Services, func(b filterplane.Service) bool { return b.Addr == o.Addr }) {
			u.Services = append(u.Services, ServiceWas{Addr: o.Addr})
		}
	}
	if s.set != "" {
		u.Sets = append(u.Sets, s.undoSet(after))
	}
	u.undoLB(s.lb, after.lb)
	return u
}

func (s *shot) undoSet(after *shot) SetWas {
	had, has := filterstage.Members(s.members), filterstage.Members(after.members)
	w := SetWas{Name: s.set, Endpoints: after.members.Endpoints != nil, Made: s.members.Prefixes == nil && s.members.Endpoints == nil}
	w.Added = entriesOf(filterplane.Members(has.Without(had)))
	if !w.Made {
		w.Removed = entriesOf(filterplane.Members(had.Without(has)))
	}
	return w
}

func (u *Undo) undoLB(before, after lb.State) {
	was, is := vipsOf(before), vipsOf(after)
	for k, v := range was {
		now, ok := is[k]
		if !ok {
			u.VIPs = append(u.VIPs, VIPWas{Service: k, Was: &v})
			continue
		}
		if !sameSettings(v, now) {
			u.VIPs = append(u.VIPs, VIPWas{k, &v, &now})
		}
		for _, b := range v.Backends {
			switch n := indexBackend(now, b.Addr); {
			case n < 0:
				u.Backends = append(u.Backends, BackendWas{VIP: k, Addr: b.Addr, Was: &b})
			case now.Backends[n] != b:
				became := now.Backends[n]
				u.Backends = append(u.Backends, BackendWas{k, b.Addr, &b, &became})
			}
		}
		for _, b := range now.Backends {
			if indexBackend(v, b.Addr) < 0 {
				u.Backends = append(u.Backends, BackendWas{VIP: k, Addr: b.Addr})
			}
		}
	}
	for k := range is {
		if _, ok := was[k]; !ok {
			u.VIPs = append(u.VIPs, VIPWas{Service: k})
		}
	}
}

func vipsOf(s lb.State) map[lb.Service]lb.VIP {
	all := make(map[lb.Service]lb.VIP)
	for _, v := range s.VIPs {
		all[v.Service] = v
	}
	return all
}

func indexBackend(v lb.VIP, a netip.Addr) int {
	return slices.IndexFunc(v.Backends, func(b lb.Backend) bool { return b.Addr == a })
}

func sameSettings(a, b lb.VIP) bool {
	a.Backends, b.Backends, a.Number, b.Number = nil, nil, 0, 0
	return reflect.DeepEqual(a, b)
}

func lbState(inst *datapath.Instance) (lb.State, error) {
	if lbplane.OptionsOf(inst) == nil {
		return lb.State{}, nil
	}
	plane, err := lbplane.View(inst)
	if err != nil {
		return lb.State{}, err
	}
	return lb.Load(plane)
}

// Back brings back what was there before a change, as far as it can: what has gone since, with a revision of the configuration or by
// hand, stays gone, and what the configuration's file has by now stays as the file has it.
func (u *Undo) Back(inst *datapath.Instance) error {
	var errs []error
	if len(u.Rules)+len(u.Services) > 0 {
		errs = append(errs, change(inst, u.backFilter))
	}
	for _, s := range u.Sets {
		errs = append(errs, s.back(inst))
	}
	if len(u.VIPs)+len(u.Backends) > 0 && lbplane.OptionsOf(inst) != nil {
		errs = append(errs, carryOut(inst, lbstage.Edit{Change: u.backLB}))
	}
	return errors.Join(errs...)
}

func (u *Undo) backFilter(f *filterplane.Filter) error {
	for _, r := range slices.Backward(u.Rules) { // those behind first, so that Before is there
		at := slices.IndexFunc(f.Rules, func(o filterplane.Rule) bool { return o.Name == r.Name })
		switch {
		case r.Was == nil && at >= 0 && !f.Rules[at].File:
			f.Rules = slices.Delete(slices.Clone(f.Rules), at, at+1)
		case r.Was != nil && at < 0:
			before := slices.IndexFunc(f.Rules, func(o filterplane.Rule) bool { return o.Name == r.Before })
			if before < 0 {
				before = len(f.Rules)
			}
			f.Rules = slices.Insert(slices.Clone(f.Rules), before, *r.Was)
		}
	}
	for _, s := range u.Services {
		at := slices.IndexFunc(f.Services, func(o filterplane.Service) bool { return o.Addr == s.Addr })
		switch {
		case s.Was == nil && at >= 0 && !f.Services[at].File:
			f.Services = slices.Delete(slices.Clone(f.Services), at, at+1)
		case s.Was != nil && at < 0:
			f.Services = append(slices.Clone(f.Services), *s.Was)
		}
	}
	return nil
}

func (s SetWas) back(inst *datapath.Instance) error {
	f, err := filterplane.Read(inst)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(f.Sets, func(o filterplane.Set) bool { return o.Name == s.Name })
	if at < 0 || f.Sets[at].Endpoints != s.Endpoints {
		return nil
	}
	if s.Made && !f.Sets[at].File && !slices.ContainsFunc(f.Rules, func(r filterplane.Rule) bool { return filter.Uses(r, s.Name) }) {
		return change(inst, func(f *filterplane.Filter) error { return filter.DeleteSets(f, []string{s.Name}) })
	}
	added, err := s.read(s.Added)
	if err != nil {
		return err
	}
	removed, err := s.read(s.Removed)
	if err != nil {
		return err
	}
	if s.Endpoints {
		return filterplane.EditEndpoints(inst, s.Name, func(e filterset.Endpoints) (filterset.Endpoints, error) {
			e.Remove(added.Endpoints)
			e.Add(removed.Endpoints)
			return e, nil
		})
	}
	return filterplane.EditPrefixes(inst, s.Name, func(p *filterset.Prefixes) (*filterset.Prefixes, error) {
		p.Remove(added.Prefixes)
		p.Add(removed.Prefixes)
		return p, nil
	})
}

func (s SetWas) read(entries []string) (filterstage.Members, error) {
	return filterstage.ReadMembers(s.Endpoints, "", nil, entries, "")
}

func (u *Undo) backLB(state *lb.State) error {
	for _, w := range u.VIPs {
		at := slices.IndexFunc(state.VIPs, func(v lb.VIP) bool { return v.Service == w.Service })
		switch {
		case w.Was == nil && at >= 0 && !state.VIPs[at].File:
			state.VIPs = slices.Delete(state.VIPs, at, at+1)
		case w.Was != nil && at < 0:
			state.VIPs = append(state.VIPs, *w.Was)
		case w.Was != nil && w.Became != nil:
			was, became, now := *w.Was, *w.Became, &state.VIPs[at]
			was.Backends, became.Backends, was.Number, became.Number, was.File, became.File = nil, nil, 0, 0, false, false
			backFields(now, was, became)
		}
	}
	for _, w := range u.Backends {
		at := slices.IndexFunc(state.VIPs, func(v lb.VIP) bool { return v.Service == w.VIP })
		if at < 0 {
			continue
		}
		v := &state.VIPs[at]
		n := indexBackend(*v, w.Addr)
		switch {
		case w.Was == nil && n >= 0 && !v.Backends[n].File:
			v.Backends = slices.Delete(v.Backends, n, n+1)
		case w.Was != nil && n < 0:
			v.Backends = append(v.Backends, *w.Was)
		case w.Was != nil && w.Became != nil:
			was, became := *w.Was, *w.Became
			was.ID, became.ID, was.File, became.File = 0, 0, false, false
			backFields(&v.Backends[n], was, became)
		}
	}
	return nil
}

// backFields sets the fields of now in which was and became differ to those of was.
func backFields[T any](now *T, was, became T) {
	to, from, changed := reflect.ValueOf(now).Elem(), reflect.ValueOf(was), reflect.ValueOf(became)
	for n := range to.NumField() {
		if !reflect.DeepEqual(from.Field(n).Interface(), changed.Field(n).Interface()) {
			to.Field(n).Set(from.Field(n))
		}
	}
}

// Join adds what a later part of the same change has replaced. It is newer: a configuration was read in between.
func (u *Undo) Join(newer *Undo) {
	if newer == nil {
		return
	}
	u.Rules = joined(u.Rules, newer.Rules, func(r RuleWas) string { return r.Name })
	u.Services = joined(u.Services, newer.Services, func(s ServiceWas) netip.AddrPort { return s.Addr })
	u.Sets = joined(u.Sets, newer.Sets, func(s SetWas) string { return s.Name })
	u.VIPs = joined(u.VIPs, newer.VIPs, func(v VIPWas) lb.Service { return v.Service })
	u.Backends = joined(u.Backends, newer.Backends, func(b BackendWas) [2]any { return [2]any{b.VIP, b.Addr} })
}

func joined[T any, K comparable](old, newer []T, key func(T) K) []T {
	old = slices.DeleteFunc(slices.Clone(old), func(o T) bool {
		return slices.ContainsFunc(newer, func(n T) bool { return key(n) == key(o) })
	})
	return append(old, newer...)
}
