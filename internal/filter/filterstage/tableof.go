// SPDX-License-Identifier: Apache-2.0

package filterstage

import (
	"culvert/internal/filter"
	"culvert/internal/filter/cbpf"
	"culvert/internal/filter/filterplane"
)

// RuleTableOf returns the table of a file that makes a rule.
func RuleTableOf(r filterplane.Rule) RuleTable {
	t := RuleTable{Name: r.Name, Action: string(r.Action), All: filter.Everything(r), Interfaces: r.Interfaces, Src: refs(r.Src), Dst: refs(r.Dst)}
	switch {
	case r.Expr != "":
		t.Expression = &r.Expr
	case len(r.Code) > 0:
		text := cbpf.Program(r.Code).String()
		t.Expression = &text
	}
	if r.Rate == nil {
		return t
	}
	t.Rate, t.Entries = Quantity(filter.FormatRate(*r.Rate)), r.Rate.Entries
	if r.Rate.Per != filterplane.PerRule {
		t.Per = filter.Per{By: r.Rate.Per, Prefix4: r.Rate.Prefix4, Prefix6: r.Rate.Prefix6}.String()
	}
	if r.Rate.Burst != 0 {
		t.Burst = Quantity(filter.FormatBurst(*r.Rate))
	}
	return t
}

func refs(all []filterplane.SetRef) (words Words) {
	for _, r := range all {
		words = append(words, filter.FormatSetRef(r))
	}
	return words
}

// SetTableOf returns the table of a file that makes a set, without its entries.
func SetTableOf(s filterplane.Set) SetTable {
	t := SetTable{Name: s.Name}
	if s.Endpoints {
		t.Type = SetEndpoints
	}
	return t
}

// ServiceTableOf returns the table of a file that makes a protected service.
func ServiceTableOf(s filterplane.Service) ServiceTable {
	return ServiceTable{Address: s.Addr.String(), Forwarded: s.Forwarded, MSS: s.MSS, WindowScale: s.WindowScale}
}
