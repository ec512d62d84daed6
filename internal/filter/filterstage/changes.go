// SPDX-License-Identifier: Apache-2.0

package filterstage

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterset"
	"culvert/internal/show/text"
	"culvert/internal/stage"
)

// Changes implements stage.Differ.
func (p *Plan) Changes(former stage.Plan, running *datapath.Instance) []string {
	f, ok := former.(*Plan)
	if !ok {
		f = new(Plan)
	}
	c := filterChanges(&f.filter, &p.filter, func(c *stage.Changes, name string, was, is filterplane.Set) {
		memberChanges(c, name, was, is, Members(f.members[is.Name]), Members(p.members[is.Name]))
	})
	if running != nil {
		p.takesBack(&c, running)
	}
	return c
}

// filterChanges returns a line for each thing that differs between two filters. members adds those about the members of a set.
func filterChanges(was, is *filterplane.Filter, members func(c *stage.Changes, name string, was, is filterplane.Set)) (c stage.Changes) {
	stage.Named(&c, "rule", was.Rules, is.Rules, func(r filterplane.Rule) string { return r.Name }, ruleChanges)
	if before, now := common(was.Rules, is.Rules), common(is.Rules, was.Rules); !slices.Equal(before, now) {
		c.Add("%s: %s", anotherOrder, strings.Join(now, ", "))
	}
	stage.Named(&c, "set", was.Sets, is.Sets, func(s filterplane.Set) string { return s.Name },
		func(c *stage.Changes, name string, was, is filterplane.Set) {
			c.Value(name+": type", setType(was), setType(is))
			members(c, name, was, is)
		})
	stage.Named(&c, "protected service", was.Services, is.Services, func(s filterplane.Service) netip.AddrPort { return s.Addr },
		func(c *stage.Changes, name string, was, is filterplane.Service) {
			c.Value(name+": forwarded", was.Forwarded, is.Forwarded)
			c.Value(name+": mss", unlessZero(was.MSS), unlessZero(is.MSS))
			c.Value(name+": wscale", unlessZero(was.WindowScale), unlessZero(is.WindowScale))
		})
	return c
}

// anotherOrder begins the line about the order of rules.
const anotherOrder = "rules in another order"

// takesBack adds lines for the changes by hand that the plan takes back on a running data plane. What keeps it from being read, or
// contradicts the plan, is an error of Check, and has no line.
func (p *Plan) takesBack(c *stage.Changes, inst *datapath.Instance) {
	now, err := running(inst)
	if err != nil {
		return
	}
	merged, err := p.merge(now)
	if err != nil {
		return
	}
	var expiring stage.Changes
	really := filterChanges(&now, &merged, func(really *stage.Changes, name string, was, is filterplane.Set) {
		file := Members(p.members[is.Name])
		if !file.given() || !is.File {
			return // they stay as they are
		}
		had, err := runningMembers(inst, was)
		switch {
		case err != nil:
		case file.expire():
			memberChanges(&expiring, name, was, is, had, file)
		default:
			memberChanges(really, name, was, is, had, file)
		}
	})
	if slices.ContainsFunc(*c, func(line string) bool { return strings.HasPrefix(line, anotherOrder) }) { // with other names
		really = slices.DeleteFunc(really, func(line string) bool { return strings.HasPrefix(line, anotherOrder) })
	}
	c.Others(really, stage.ByHand)
	c.Others(expiring, orExpired)
}

// orExpired is the note on lines about members of a set whose entries expire.
const orExpired = " (changed by hand, or expired)"

// runningMembers returns the members of a set of a running data plane that have not expired.
func runningMembers(inst *datapath.Instance, s filterplane.Set) (m Members, err error) {
	if s.Endpoints {
		if m.Endpoints, err = filterplane.Endpoints(inst, s.Name); err == nil {
			m.Endpoints.Expire(filterplane.Now())
		}
		return m, err
	}
	if m.Prefixes, err = filterplane.Prefixes(inst, s.Name); err == nil {
		m.Prefixes.Expire(filterplane.Now())
	}
	return m, err
}

// common returns the names of the rules that the others have too, in their order.
func common(rules, others []filterplane.Rule) (names []string) {
	for _, r := range rules {
		if slices.ContainsFunc(others, func(o filterplane.Rule) bool { return o.Name == r.Name }) {
			names = append(names, r.Name)
		}
	}
	return names
}

func ruleChanges(c *stage.Changes, name string, was, is filterplane.Rule) {
	c.Value(name+": action", was.Action, is.Action)
	rates := [2]struct{ rate, per, burst, entries string }{}
	for n, r := range []*filterplane.Rate{was.Rate, is.Rate} {
		if r == nil {
			continue
		}
		rates[n].rate, rates[n].per = filter.FormatRate(*r), filter.Per{By: r.Per, Prefix4: r.Prefix4, Prefix6: r.Prefix6}.String()
		rates[n].entries = unlessZero(r.Entries)
		if r.Burst != 0 {
			rates[n].burst = filter.FormatBurst(*r)
		}
	}
	c.Value(name+": rate", rates[0].rate, rates[1].rate)
	c.Value(name+": per", rates[0].per, rates[1].per)
	c.Value(name+": burst", rates[0].burst, rates[1].burst)
	c.Value(name+": entries", rates[0].entries, rates[1].entries)
	c.Value(name+": interfaces", strings.Join(was.Interfaces, " "), strings.Join(is.Interfaces, " "))
	c.Value(name+": src", references(was.Src), references(is.Src))
	c.Value(name+": dst", references(was.Dst), references(is.Dst))
	switch {
	case len(was.Expr) <= longExpression && len(is.Expr) <= longExpression && was.Expr != is.Expr:
		c.Value(name+": expression", was.Expr, is.Expr)
	case was.Expr != is.Expr || !slices.Equal(was.Code, is.Code):
		c.Add("%s: expression changed", name)
	}
}

// longExpression is the length from which on an expression makes a line too long.
const longExpression = 60

func references(all []filterplane.SetRef) string {
	var words []string
	for _, r := range all {
		words = append(words, filter.FormatSetRef(r))
	}
	return strings.Join(words, " ")
}

func setType(s filterplane.Set) string {
	if s.Endpoints {
		return SetEndpoints
	}
	return SetPrefixes
}

// unlessZero returns the text of a number, "" for 0, which is a default.
func unlessZero[N int | uint8 | uint16](n N) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// memberChanges adds a line if a set has other members.
func memberChanges(c *stage.Changes, name string, was, is filterplane.Set, had, has Members) {
	if was.Endpoints != is.Endpoints {
		had = Members{}
	}
	if had.given() && !has.given() {
		c.Add("%s: the file has its entries no more: they stay, and are changed by hand", name)
		return
	}
	added, removed := has.Without(had), had.Without(has)
	var parts []string
	if added.size() > 0 {
		parts = append(parts, added.Count()+" added")
	}
	switch {
	case removed.size() > 0 && len(parts) > 0:
		parts = append(parts, text.Grouped(uint64(removed.size()))+" removed")
	case removed.size() > 0:
		parts = append(parts, removed.Count()+" removed")
	}
	if len(parts) > 0 {
		c.Add("%s: %s", name, strings.Join(parts, ", "))
	}
}

// given tells whether a file has members for the set.
func (m Members) given() bool { return m.Prefixes != nil || m.Endpoints != nil }

// expire tells whether some members expire.
func (m Members) expire() bool {
	if m.Prefixes != nil {
		for _, until := range m.Prefixes.All() {
			if until != filterset.Never {
				return true
			}
		}
	}
	for _, until := range m.Endpoints {
		if until != filterset.Never {
			return true
		}
	}
	return false
}

// Without returns the members that other members are not.
func (m Members) Without(others Members) (rest Members) {
	if m.Prefixes != nil {
		rest.Prefixes = new(filterset.Prefixes)
		rest.Prefixes.Add(m.Prefixes)
		if others.Prefixes != nil {
			rest.Prefixes.Remove(others.Prefixes)
		}
		return rest
	}
	rest.Endpoints = make(filterset.Endpoints)
	for e, until := range m.Endpoints {
		if _, ok := others.Endpoints[e]; !ok {
			rest.Endpoints[e] = until
		}
	}
	return rest
}
