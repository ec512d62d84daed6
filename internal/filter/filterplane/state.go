// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"reflect"
	"slices"
)

// filterState is a filter with the numbers by which the programs know its parts. It is stored with the program (see pack).
type filterState struct {
	Filter Filter
	// Rules maps the name of a rule to the number of its counters, Sets the name of a set to its number.
	Rules map[string]int `json:",omitempty"`
	Sets  map[string]int `json:",omitempty"`
	// Limits maps the name of a rule with a rate to its limit.
	Limits map[string]limitState `json:",omitempty"`
	// Found is the number of rules that lookups find.
	Found int `json:",omitempty"`
	// Layouts maps the name of a map to the fingerprint of its layout (datapath.MapLayouts).
	Layouts map[string]string `json:",omitempty"`
}

type limitState struct {
	Number int
	Rate   Rate
}

// clone copies f. The copies share what an edit replaces but does not change: the code and the rates of rules.
func (f Filter) clone() Filter {
	c := f
	c.Rules = slices.Clone(f.Rules)
	for n := range c.Rules {
		c.Rules[n].Interfaces = slices.Clone(c.Rules[n].Interfaces)
		c.Rules[n].Src, c.Rules[n].Dst = slices.Clone(c.Rules[n].Src), slices.Clone(c.Rules[n].Dst)
	}
	c.Sets, c.Services = slices.Clone(f.Sets), slices.Clone(f.Services)
	return c
}

// empty tells whether f has nothing in it.
func (f *Filter) empty() bool {
	return len(f.Rules) == 0 && len(f.Sets) == 0 && len(f.Services) == 0 && f.Top == TopOff
}

// Validate returns an error if the parts of f contradict each other, or if there are more of them than the maps have room for.
func (f *Filter) Validate() error {
	if len(f.Rules) > maxRules {
		return fmt.Errorf("%d rules: a filter has at most %d: put addresses into sets", len(f.Rules), maxRules)
	}
	if len(f.Sets) > maxSets {
		return fmt.Errorf("%d sets: a filter has at most %d", len(f.Sets), maxSets)
	}
	sets := make(map[string]bool)
	for _, s := range f.Sets {
		if s.Name == "" {
			return errors.New("a set without a name")
		}
		if sets[s.Name] {
			return fmt.Errorf("two sets are called %s", s.Name)
		}
		sets[s.Name] = true
	}
	rules := make(map[string]bool)
	for n := range f.Rules {
		r := &f.Rules[n]
		if r.Name == "" {
			return errors.New("a rule without a name")
		}
		if rules[r.Name] {
			return fmt.Errorf("two rules are called %s: give one of them another name", r.Name)
		}
		rules[r.Name] = true
		if err := r.validate(sets); err != nil {
			return fmt.Errorf("rule %s: %w", r.Name, err)
		}
	}
	if err := checkServices(f.Services); err != nil {
		return err
	}
	if f.Top > TopPort {
		return fmt.Errorf("talkers by %d: use %d to %d", f.Top, TopOff, TopPort)
	}
	return nil
}

func (r *Rule) validate(sets map[string]bool) error {
	for _, ref := range slices.Concat(r.Src, r.Dst) {
		if !sets[ref.Set] {
			return fmt.Errorf("there is no set %s: make it with 'culvert filter set add %[1]s'", ref.Set)
		}
	}
	switch r.Action {
	case Drop, Pass, Count:
		if r.Rate != nil {
			return fmt.Errorf("a rate goes with %s, not with %s", Limit, r.Action)
		}
	case Limit:
		if r.Rate == nil {
			return fmt.Errorf("%s without a rate", Limit)
		}
		return r.Rate.Validate()
	default:
		return fmt.Errorf("action %q: use %s, %s, %s or %s", r.Action, Drop, Pass, Count, Limit)
	}
	return nil
}

// succeed returns the state of the filter f, which replaces s. A part that s has too keeps its number, except for a set that
// gets other members. All other numbers are ones that s does not use: the old program reads those of s until it is replaced.
func (s *filterState) succeed(f Filter, members map[string]Members) (*filterState, error) {
	next := &filterState{
		Filter: f, Layouts: s.Layouts,
		Rules: make(map[string]int), Sets: make(map[string]int), Limits: make(map[string]limitState),
	}
	rules := newNumbers(2*maxRules, maps.Values(s.Rules))
	sets := newNumbers(2*maxSets, maps.Values(s.Sets))
	limits := newNumbers(2*maxLimits, func(yield func(int) bool) {
		for _, l := range s.Limits {
			if !yield(l.Number) {
				return
			}
		}
	})
	var err error
	for _, r := range f.Rules {
		var ok bool
		if next.Rules[r.Name], ok = s.Rules[r.Name]; !ok {
			if next.Rules[r.Name], err = rules.take(); err != nil {
				return nil, fmt.Errorf("counters for rule %s: %w", r.Name, err)
			}
		}
		if r.Rate == nil {
			continue
		}
		if l, ok := s.Limits[r.Name]; ok && reflect.DeepEqual(l.Rate, *r.Rate) {
			next.Limits[r.Name] = l
			continue
		}
		n, err := limits.take()
		if err != nil {
			return nil, fmt.Errorf("a limit for rule %s: %w", r.Name, err)
		}
		next.Limits[r.Name] = limitState{Number: n, Rate: *r.Rate}
	}
	for _, set := range f.Sets {
		n, ok := s.Sets[set.Name]
		_, other := members[set.Name]
		if was := s.Filter.set(set.Name); ok && !other && was != nil && was.Endpoints == set.Endpoints {
			next.Sets[set.Name] = n
			continue
		}
		if next.Sets[set.Name], err = sets.take(); err != nil {
			return nil, fmt.Errorf("room for set %s: %w", set.Name, err)
		}
	}
	return next, nil
}

// NamedSet returns a set of a filter. It is an error if there is none of that name.
func (f *Filter) NamedSet(name string) (*Set, error) {
	if s := f.set(name); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("no set %s: see 'culvert filter set list'", name)
}

func (f *Filter) set(name string) *Set {
	n := slices.IndexFunc(f.Sets, func(s Set) bool { return s.Name == name })
	if n < 0 {
		return nil
	}
	return &f.Sets[n]
}

// numbers gives out free numbers, the lowest first.
type numbers struct {
	used []bool
	next int
}

// newNumbers gives out numbers below n, except for the used ones.
func newNumbers(n int, used iter.Seq[int]) *numbers {
	s := &numbers{used: make([]bool, n)}
	for u := range used {
		if u < n {
			s.used[u] = true
		}
	}
	return s
}

func (s *numbers) take() (int, error) {
	for ; s.next < len(s.used); s.next++ {
		if !s.used[s.next] {
			s.used[s.next] = true
			return s.next, nil
		}
	}
	return 0, fmt.Errorf("all %d are in use until the change is made: do it in two steps", len(s.used))
}

// steps returns the rules with numbers in the place of names. Ifindex returns the index of an interface; a rule does not match
// packets of an interface for which it is false.
func (s *filterState) steps(ifindex func(name string) (int, bool)) []ruleStep {
	var steps []ruleStep
	for _, r := range s.Filter.Rules {
		step := ruleStep{
			action: r.Action, counter: counterRules + 2*s.Rules[r.Name], anyInterface: len(r.Interfaces) == 0,
			code: r.Code, limit: s.Limits[r.Name].Number, perAddress: r.Rate != nil && r.Rate.Per != PerRule,
		}
		for _, name := range r.Interfaces {
			if index, ok := ifindex(name); ok {
				step.ifindexes = append(step.ifindexes, index)
			}
		}
		for n, ref := range slices.Concat(r.Src, r.Dst) {
			step.sets = append(step.sets, setStep{
				set: s.Sets[ref.Set], dst: n >= len(r.Src), not: ref.Not, endpoints: s.Filter.set(ref.Set).Endpoints,
			})
		}
		steps = append(steps, step)
	}
	return steps
}

// pack encodes s as JSON. It compresses it, because a thousand rules are long in JSON.
func (s *filterState) pack() ([]byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err = z.Write(text)
	err = errors.Join(err, z.Close())
	return b.Bytes(), err
}

// unpack decodes what pack has encoded. Zeros may follow it.
func unpack(b []byte) (*filterState, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("reading the filter: %w", err)
	}
	z.Multistream(false)
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("reading the filter: %w", err)
	}
	var s filterState
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("reading the filter: %w", err)
	}
	return &s, nil
}
