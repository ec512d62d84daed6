// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterset"
	"culvert/internal/filter/filterstage"
	"culvert/internal/lb"
)

// Urgent changes of a cluster are requests as those of a verb, on the data plane that runs. Each is carried out with an Undo, which has
// what was there before. They are no part of the configuration's plan: what is made by hand stays when a configuration is read again, so
// that rules, protected services, new backends and drains are in force without a gap. Only what changes the file's own things has to be
// done again after that; for entries of the file's sets filterstage.Plan takes them along, so that there is no gap either.

// Parse returns the request of a verb, from its words and its JSON.
func Parse(words string, request []byte) (Request, error) {
	for _, v := range Verbs() {
		if v.Words != words {
			continue
		}
		q := v.New()
		d := json.NewDecoder(bytes.NewReader(request))
		d.DisallowUnknownFields()
		if err := d.Decode(q); err != nil {
			return nil, fmt.Errorf("the request of '%s': %w", words, err)
		}
		return q, nil
	}
	return nil, fmt.Errorf("there is no verb '%s' that changes something", words)
}

// CheckUrgent refuses what cannot be an urgent change of a cluster: what has no clear undo, and what would put secrets into etcd.
func CheckUrgent(q Request) error {
	refuse := errors.New
	var err error
	switch q := q.(type) {
	case *RuleAdd:
		switch {
		case q.Replace:
			err = refuse("an urgent change replaces no rule: add another one in front")
		case q.Rule == "":
			err = refuse("an urgent rule needs a name, the same on all nodes")
		}
	case *SetAdd:
		if q.Replace {
			err = refuse("an urgent change does not replace a set: add entries, or put the set into the configuration")
		}
	case *SetDel:
		if len(q.Entries) == 0 {
			err = refuse("an urgent change does not delete a set: delete entries, or take the set out of the configuration")
		}
	case *SetReplace:
		err = refuse("an urgent change does not replace a set: add entries, or put the set into the configuration")
	case *FilterFlush:
		err = refuse("an urgent change does not delete all rules: name them")
	case *KeyAdd, *KeyDel:
		err = refuse("forwarding keys are no urgent change: they are secrets, which etcd is not to have")
	}
	if err != nil {
		return err
	}
	return q.Check()
}

// CarryOut carries out an urgent change that is not in force yet, and returns what undoes it.
func CarryOut(ctx context.Context, q Request, inst *datapath.Instance) (*Undo, error) {
	before, err := snapshot(inst, q)
	if err != nil {
		return nil, err
	}
	if before.made(q) { // by this node, which died before it could note that
		return &Undo{Rules: []RuleWas{{Name: q.(*RuleAdd).Rule}}}, nil
	}
	if _, err := Do(ctx, q, inst, nil); err != nil {
		return nil, err
	}
	after, err := snapshot(inst, q)
	if err != nil {
		return nil, err
	}
	return before.undo(after), nil
}

// Ensure carries out again what of an urgent change is in force no more, after a configuration was read. It returns what undoes that,
// nil if all was in force.
func Ensure(ctx context.Context, q Request, inst *datapath.Instance) (*Undo, error) {
	s, err := snapshot(inst, q)
	if err != nil {
		return nil, err
	}
	if q = s.lacks(q); q == nil {
		return nil, nil
	}
	return CarryOut(ctx, q, inst)
}

// shot is what a request may change.
type shot struct {
	filter  filterplane.Filter
	set     string // the one that the request changes
	members filterplane.Members
	lb      lb.State
}

func snapshot(inst *datapath.Instance, q Request) (*shot, error) {
	s := new(shot)
	var err error
	if s.filter, err = filterplane.Read(inst); err != nil {
		return nil, err
	}
	switch q := q.(type) {
	case *SetAdd:
		s.set = q.Set
	case *SetDel:
		s.set = q.Set
	case *VIPAdd, *VIPSet, *VIPDel, *BackendAdd, *BackendSet, *BackendDel, *Drain, *Undrain:
		s.lb, err = lbState(inst)
		return s, err
	}
	n := slices.IndexFunc(s.filter.Sets, func(o filterplane.Set) bool { return o.Name == s.set })
	if n < 0 {
		return s, nil
	}
	if s.filter.Sets[n].Endpoints {
		s.members.Endpoints, err = filterplane.Endpoints(inst, s.set)
		s.members.Endpoints.Expire(filterplane.Now())
		return s, err
	}
	if s.members.Prefixes, err = filterplane.Prefixes(inst, s.set); err == nil {
		s.members.Prefixes.Expire(filterplane.Now())
	}
	return s, err
}

// made tells whether a rule is there by hand that is just the one that is asked for.
func (s *shot) made(q Request) bool {
	add, ok := q.(*RuleAdd)
	if !ok {
		return false
	}
	want, err := add.spec().Rule()
	n := slices.IndexFunc(s.filter.Rules, func(r filterplane.Rule) bool { return r.Name == add.Rule && !r.File })
	if err != nil || n < 0 {
		return false
	}
	return filter.SameRule(s.filter.Rules[n], want)
}

// lacks returns a request for what of q is not in force, nil if all is.
func (s *shot) lacks(q Request) Request {
	switch q := q.(type) {
	case *RuleAdd:
		if s.rule(q.Rule) {
			return nil
		}
	case *RuleDel:
		rest := slices.DeleteFunc(slices.Clone(q.Rules), func(name string) bool { return !s.rule(name) })
		if len(rest) == 0 {
			return nil
		}
		return &RuleDel{Rules: rest}
	case *ServiceProtect:
		if s.service(q.Service) {
			return nil
		}
	case *ServiceUnprotect:
		if !s.service(q.Service) {
			return nil
		}
	case *SetAdd:
		return s.lacksEntries(q)
	case *SetDel:
		return s.hasEntries(q)
	case *VIPAdd:
		if v := s.named(q.VIP); v != nil {
			return nil
		}
	case *VIPDel:
		if v := s.named(q.VIP); v == nil {
			return nil
		}
	case *BackendAdd:
		if _, b := s.backend(q.BackendName); b != nil {
			return nil
		}
	case *BackendDel:
		if _, b := s.backend(q.BackendName); b == nil {
			return nil
		}
	}
	return q // the same settings once more change nothing
}

func (s *shot) rule(name string) bool {
	return slices.ContainsFunc(s.filter.Rules, func(r filterplane.Rule) bool { return r.Name == name })
}

func (s *shot) service(text string) bool {
	addr, err := filter.ParseService(text)
	return err == nil && slices.ContainsFunc(s.filter.Services, func(o filterplane.Service) bool { return o.Addr == addr })
}

// lacksEntries returns q unless all of its entries are in the set.
func (s *shot) lacksEntries(q *SetAdd) Request {
	m, err := q.read(s.members.Endpoints != nil)
	switch {
	case err != nil:
	case m.Prefixes != nil && s.members.Prefixes != nil:
		if _, missing := s.members.Prefixes.Missing(m.Prefixes); !missing {
			return nil
		}
	case m.Endpoints != nil && s.members.Endpoints != nil:
		if _, missing := s.members.Endpoints.Missing(m.Endpoints); !missing {
			return nil
		}
	}
	return q
}

// hasEntries returns a request for those entries that are in the set again, nil for none.
func (s *shot) hasEntries(q *SetDel) Request {
	var rest []string
	for _, e := range q.Entries {
		m, err := filterstage.ReadMembers(s.members.Endpoints != nil, "", nil, []string{e}, "")
		if err != nil {
			continue
		}
		missing := true
		switch {
		case m.Prefixes != nil && s.members.Prefixes != nil:
			_, missing = s.members.Prefixes.Missing(m.Prefixes)
		case m.Endpoints != nil && s.members.Endpoints != nil:
			_, missing = s.members.Endpoints.Missing(m.Endpoints)
		}
		if !missing {
			rest = append(rest, e)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return &SetDel{Set: q.Set, Entries: rest}
}

// named returns the VIP of a name, nil if there is none.
func (s *shot) named(text string) *lb.VIP {
	k, err := lb.ParseService(text)
	n := slices.IndexFunc(s.lb.VIPs, func(v lb.VIP) bool { return v.Service == k })
	if err != nil || n < 0 {
		return nil
	}
	return &s.lb.VIPs[n]
}

func (s *shot) backend(n BackendName) (*lb.VIP, *lb.Backend) {
	v := s.named(n.VIP)
	a, err := netip.ParseAddr(n.Backend)
	if v == nil || err != nil {
		return nil, nil
	}
	for i := range v.Backends {
		if v.Backends[i].Addr == a {
			return v, &v.Backends[i]
		}
	}
	return v, nil
}

// entriesOf returns the members of a set as entries, each with its timeout.
func entriesOf(m filterplane.Members) (entries []string) {
	now := filterplane.Now()
	text := func(entry string, until filterset.Time) string {
		if until == filterset.Never {
			return entry
		}
		return fmt.Sprintf("%s timeout %s", entry, until.Until(now))
	}
	if m.Prefixes != nil {
		for p, until := range m.Prefixes.All() {
			entries = append(entries, text(p.String(), until))
		}
		return entries
	}
	for e, until := range m.Endpoints {
		entries = append(entries, text(e.String(), until))
	}
	return entries
}
