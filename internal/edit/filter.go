// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterstage"
	"culvert/internal/filter/filterview"
	"culvert/internal/show/usage"
)

// onFilter opens the data plane of a change of the filter.
type onFilter struct{}

func (onFilter) open(on string) (*datapath.Instance, error) { return filterview.Open(on) }

// RuleAdd asks for a rule.
type RuleAdd struct {
	onFilter
	// Rule is its name; without one it is rule1, rule2 and so on.
	Rule string `json:"rule,omitempty"`
	// Action is drop, pass, count or limit.
	Action string `json:"action"`
	// Rate goes with limit: 1kpps, 10Mbit/s.
	Rate string `json:"rate,omitempty"`
	// Per is what has a rate of its own: src, dst, or with prefix lengths src/24,48.
	Per string `json:"per,omitempty"`
	// Burst is how much is let through at once, as 64kB.
	Burst string `json:"burst,omitempty"`
	// Entries is for how many addresses rates are kept at least.
	Entries int `json:"entries,omitempty"`
	// Interfaces are those that the rule is for. Without any it is for all.
	Interfaces []string `json:"interfaces,omitempty"`
	// Src and Dst are sets that the address is in, @NAME, or not in, !@NAME.
	Src []string `json:"src,omitempty"`
	Dst []string `json:"dst,omitempty"`
	// Expression is one of pcap-filter(7), or a program as tcpdump -ddd prints it.
	Expression *string `json:"expression,omitempty"`
	// All confirms that the rule is to drop or pass every packet.
	All bool `json:"all,omitempty"`
	// First puts the rule in front of all others, Before in front of the one of that name.
	First  bool   `json:"first,omitempty"`
	Before string `json:"before,omitempty"`
	// Replace gives the rule the place and the counters of the one of the same name.
	Replace bool `json:"replace,omitempty"`
}

// NewRule returns a request for a rule.
func NewRule(s filter.Spec) RuleAdd {
	return RuleAdd{
		Rule: s.Name, Action: s.Action, Rate: s.Rate, Per: s.Per, Burst: s.Burst, Entries: s.Entries, Interfaces: s.Interfaces, Src: s.Src, Dst: s.Dst,
		Expression: s.Expression, All: s.All,
	}
}

func (a *RuleAdd) spec() filter.Spec {
	return filter.Spec{
		Name: a.Rule, Action: a.Action, Rate: a.Rate, Per: a.Per, Burst: a.Burst, Entries: a.Entries, Interfaces: a.Interfaces, Src: a.Src, Dst: a.Dst,
		Expression: a.Expression, All: a.All,
	}
}

// Check implements Request.
func (a *RuleAdd) Check() error {
	switch {
	case a.First && a.Before != "":
		return usage.Error(errors.New("--first beside --before: give one of them"))
	case a.Replace && (a.First || a.Before != ""):
		return usage.Error(errors.New("--replace keeps the rule's place in the order: leave out --first and --before"))
	case a.Replace && a.Rule == "":
		return usage.Error(errors.New("--replace needs --name: name the rule to replace"))
	}
	_, err := a.spec().Rule()
	return FilterError(err)
}

func (a *RuleAdd) do(_ context.Context, inst *datapath.Instance, r *Result) error {
	rule, err := a.spec().Rule()
	if err != nil {
		return err
	}
	if err := checkInterfaces(rule, interfacesOf(inst)); err != nil {
		return err
	}
	name, verb := rule.Name, "replaced"
	var before []filterplane.Rule
	err = change(inst, func(f *filterplane.Filter) (err error) {
		if a.Replace {
			before = f.Rules
			return filter.Replace(f, rule)
		}
		verb = "added"
		name, err = filter.Insert(f, rule, filter.Place{First: a.First, Before: a.Before})
		return err
	})
	if err != nil {
		return err
	}
	r.Rule = name
	fmt.Fprintf(r, "rule %s %s\n", name, verb)
	noteFileRules(before, []string{name}, r)
	noteUnattached(inst, r)
	noteMissing(inst, rule.Interfaces, r)
	return nil
}

// change edits the filter of a data plane with f.
func change(inst *datapath.Instance, f func(*filterplane.Filter) error) error {
	return carryOut(inst, filterstage.Edit{Change: f})
}

// RuleDel asks for rules to be deleted: all that are named, or none if one does not exist.
type RuleDel struct {
	onFilter
	// Rules are their names.
	Rules []string `json:"rules"`
}

// Check implements Request.
func (d *RuleDel) Check() error {
	if len(d.Rules) == 0 {
		return usage.Error(errors.New("no rules: name some"))
	}
	return nil
}

func (d *RuleDel) do(_ context.Context, inst *datapath.Instance, r *Result) error {
	var before []filterplane.Rule
	err := change(inst, func(f *filterplane.Filter) error {
		before = f.Rules
		return filter.Delete(f, d.Rules)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(r, "%s %s deleted\n", plural(len(d.Rules), "rule"), strings.Join(d.Rules, ", "))
	noteFileRules(before, d.Rules, r)
	noteUnattached(inst, r)
	return nil
}

// noteFileRules writes which of the named rules come from the configuration file, since these come back.
func noteFileRules(rules []filterplane.Rule, names []string, out io.Writer) {
	var fromFile []string
	for _, name := range names {
		for _, r := range rules {
			if r.Name == name && r.File {
				fromFile = append(fromFile, name)
			}
		}
	}
	if len(fromFile) > 0 {
		fmt.Fprintf(out, "the configuration file brings %s back when it is read again\n", strings.Join(fromFile, ", "))
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}

// FilterFlush asks for all rules to be deleted.
type FilterFlush struct {
	onFilter
	// All deletes sets and protected services too.
	All bool `json:"all,omitempty"`
}

// Check implements Request.
func (*FilterFlush) Check() error { return nil }

func (q *FilterFlush) do(_ context.Context, inst *datapath.Instance, r *Result) error {
	var before filterplane.Filter
	err := change(inst, func(f *filterplane.Filter) error {
		before = *f
		filter.Flush(f)
		if q.All {
			f.Sets, f.Services, f.Top = nil, nil, filterplane.TopOff
		}
		return nil
	})
	if err != nil {
		return err
	}
	deleted := filterview.Summary(len(before.Rules), 0, 0)
	if q.All {
		deleted = filterview.Summary(len(before.Rules), len(before.Sets), len(before.Services))
	}
	if deleted == "" {
		deleted = "nothing"
	}
	fmt.Fprintf(r, "%s deleted\n", deleted)
	if back := fromFile(before, q.All); back != "" {
		fmt.Fprintf(r, "the configuration file brings %s back when it is read again\n", back)
	}
	noteUnattached(inst, r)
	return nil
}

// fromFile says how much of a filter is from the configuration file, "" for nothing. Only with all are sets and services counted.
func fromFile(f filterplane.Filter, all bool) string {
	var rules, sets, services int
	for _, r := range f.Rules {
		if r.File {
			rules++
		}
	}
	if !all {
		return filterview.Summary(rules, 0, 0)
	}
	for _, s := range f.Sets {
		if s.File {
			sets++
		}
	}
	for _, s := range f.Services {
		if s.File {
			services++
		}
	}
	return filterview.Summary(rules, sets, services)
}

// interfacesOf returns the interfaces that a data plane is attached to, and those that it attaches to once they exist again.
// The names are sorted.
func interfacesOf(inst *datapath.Instance) []string {
	all := slices.Concat(inst.Attached(), inst.Configured())
	slices.Sort(all)
	return slices.Compact(all)
}

// noteMissing writes which interfaces of a rule do not carry the data plane now, while others do.
func noteMissing(inst *datapath.Instance, interfaces []string, out io.Writer) {
	var missing []string
	for _, u := range inst.Unattached() {
		if slices.Contains(interfaces, u.Interface) {
			missing = append(missing, u.Interface)
		}
	}
	if len(missing) > 0 && len(inst.Attached()) > 0 {
		fmt.Fprintf(out, "%s is not on %s now: there the rule is in force once it is attached again\n", inst.Name(), strings.Join(missing, " and "))
	}
}

// noteUnattached writes that a change has no effect yet, if the data plane is attached to no interface.
func noteUnattached(inst *datapath.Instance, out io.Writer) {
	if len(inst.Attached()) > 0 {
		return
	}
	fmt.Fprintf(out, "%s is on no interface now: this is in force once %s is there again\n", inst.Name(), strings.Join(inst.Configured(), " or "))
}

// checkInterfaces returns an error if a rule names an interface that is not in known. Such a rule would never see a packet.
func checkInterfaces(r filterplane.Rule, known []string) error {
	for _, name := range r.Interfaces {
		if !slices.Contains(known, name) {
			return fmt.Errorf("rule for %s: the data plane is not attached to it, but to %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}
