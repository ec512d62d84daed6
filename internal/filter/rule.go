// SPDX-License-Identifier: Apache-2.0

// Package filter parses and formats the rules of the packet filter, and merges those of the configuration file with those made by
// hand.
package filter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"culvert/internal/filter/filterplane"
)

// Spec is a rule as text, as it is on the command line and in the configuration file.
type Spec struct {
	Name       string
	Action     string
	Rate       string
	Per        string
	Burst      string
	Entries    int
	Interfaces []string
	Src, Dst   []string
	// Expression is one of libpcap's, or a classic BPF program as text. It is nil if there is none.
	Expression *string
	// All confirms that the rule is meant to drop or pass every packet.
	All bool
}

// Parts of a Spec, by the keys of the configuration file.
const (
	PartName       = "name"
	PartAction     = "action"
	PartRate       = "rate"
	PartPer        = "per"
	PartBurst      = "burst"
	PartEntries    = "entries"
	PartInterfaces = "interfaces"
	PartSrc        = "src"
	PartDst        = "dst"
	PartExpression = "expression"
	PartAll        = "all"
)

// PartError is an error in a part of a Spec.
type PartError struct {
	Part string
	Err  error
}

func (e *PartError) Error() string { return e.Err.Error() }

func (e *PartError) Unwrap() error { return e.Err }

// EverythingError is the error of a rule that would drop or pass every packet, if Spec.All does not confirm it.
type EverythingError struct {
	Action filterplane.Action
}

func (e *EverythingError) Error() string {
	if e.Action == filterplane.Pass {
		return "the rule would pass every packet, past the rest of the filter"
	}
	return "the rule would drop every packet"
}

// Actions are the words for all actions.
var Actions = []string{
	string(filterplane.Drop), string(filterplane.Pass), string(filterplane.Count), string(filterplane.Limit),
}

// Rule parses s and compiles its expression. The name may be empty. All errors are of type *PartError.
func (s Spec) Rule() (filterplane.Rule, error) {
	r := filterplane.Rule{Name: s.Name, Action: filterplane.Action(s.Action), Interfaces: slices.Clone(s.Interfaces)}
	part, err := s.fill(&r)
	if err != nil {
		return r, &PartError{part, err}
	}
	return r, nil
}

// fill is Rule, and returns the part that the error is about.
func (s Spec) fill(r *filterplane.Rule) (part string, err error) {
	if s.Name != "" {
		if err := CheckName("rule", s.Name); err != nil {
			return PartName, err
		}
	}
	if !slices.Contains(Actions, s.Action) {
		return PartAction, fmt.Errorf("%q is no action: use drop, pass, count or limit", s.Action)
	}
	if part, err = s.limit(r); err != nil {
		return part, err
	}
	for n, name := range s.Interfaces {
		if name == "" || slices.Contains(s.Interfaces[:n], name) {
			return PartInterfaces, fmt.Errorf("interface %q is given twice or has no name", name)
		}
	}
	if r.Src, err = setRefs(s.Src); err != nil {
		return PartSrc, err
	}
	if r.Dst, err = setRefs(s.Dst); err != nil {
		return PartDst, err
	}
	if s.Expression != nil {
		if r.Code, r.Expr, err = Compile(*s.Expression); err != nil {
			return PartExpression, err
		}
	}
	switch everything := Everything(*r); {
	case everything && !s.All:
		return PartAction, &EverythingError{r.Action}
	case s.All && !everything:
		return PartAll, errors.New("all is for a rule that drops or passes every packet: leave it out")
	}
	return "", nil
}

func setRefs(words []string) ([]filterplane.SetRef, error) {
	var refs []filterplane.SetRef
	for _, w := range words {
		ref, err := ParseSetRef(w)
		if err != nil {
			return nil, err
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// limit parses what goes with the action limit, and returns the part that the error is about.
func (s Spec) limit(r *filterplane.Rule) (part string, err error) {
	if s.Action != string(filterplane.Limit) {
		for _, p := range []struct {
			part  string
			given bool
		}{{PartRate, s.Rate != ""}, {PartPer, s.Per != ""}, {PartBurst, s.Burst != ""}, {PartEntries, s.Entries != 0}} {
			if p.given {
				return p.part, fmt.Errorf("%s goes with the action limit, not with %s", p.part, s.Action)
			}
		}
		return "", nil
	}
	if s.Rate == "" {
		return PartRate, fmt.Errorf("limit needs a rate: %s", rateForms)
	}
	rate, err := ParseRate(s.Rate)
	if err == nil {
		err = rate.Validate()
	}
	if err != nil {
		return PartRate, err
	}
	if s.Per != "" {
		per, err := ParsePer(s.Per)
		if err != nil {
			return PartPer, err
		}
		rate.Per, rate.Prefix4, rate.Prefix6 = per.By, per.Prefix4, per.Prefix6
	}
	// Validate after each part, so that the last one is the one to blame.
	if err := rate.Validate(); err != nil {
		return PartPer, err
	}
	if s.Burst != "" {
		if rate.Burst, err = ParseBurst(s.Burst, rate.Bytes); err == nil {
			err = rate.Validate()
		}
		if err != nil {
			return PartBurst, err
		}
	}
	if s.Entries != 0 && s.Per == "" {
		return PartEntries, errors.New("entries without per: one rate for the whole rule needs no entries")
	}
	rate.Entries = s.Entries
	if err := rate.Validate(); err != nil {
		return PartEntries, err
	}
	r.Rate = &rate
	return "", nil
}

// Everything tells whether the rule drops or passes every packet that comes in by its interfaces.
func Everything(r filterplane.Rule) bool {
	decides := r.Action == filterplane.Drop || r.Action == filterplane.Pass
	return decides && len(r.Src) == 0 && len(r.Dst) == 0 && matchesAll(r.Code)
}

// Words returns a rule as the arguments of 'culvert filter add', without its name.
func Words(r filterplane.Rule) string {
	words := []string{string(r.Action)}
	if r.Rate != nil {
		words = append(words, FormatRate(*r.Rate))
		if r.Rate.Per != filterplane.PerRule {
			words = append(words, "--per", Per{r.Rate.Per, r.Rate.Prefix4, r.Rate.Prefix6}.String())
		}
		if r.Rate.Burst != 0 {
			words = append(words, "--burst", FormatBurst(*r.Rate))
		}
		if r.Rate.Entries != 0 {
			words = append(words, "--entries", fmt.Sprint(r.Rate.Entries))
		}
	}
	for _, i := range r.Interfaces {
		words = append(words, "-i", quote(i))
	}
	for _, ref := range r.Src {
		words = append(words, "--src", quote(FormatSetRef(ref)))
	}
	for _, ref := range r.Dst {
		words = append(words, "--dst", quote(FormatSetRef(ref)))
	}
	switch {
	case r.Expr != "":
		words = append(words, quote(r.Expr))
	case len(r.Code) > 0:
		words = append(words, fmt.Sprintf("(classic BPF of %d instructions)", len(r.Code)))
	}
	if Everything(r) {
		words = append(words, "--all")
	}
	return strings.Join(words, " ")
}

// quote quotes a word for the shell if it needs quotes.
func quote(s string) string {
	plain := func(r rune) bool { return nameRune(r) || strings.ContainsRune("@:/,+=%", r) }
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
