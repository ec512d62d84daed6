// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"culvert/internal/filter/filterplane"
)

// Place says where a new rule goes; at the end if nothing is said.
type Place struct {
	First bool
	// Before names the rule that it goes in front of.
	Before string
}

// Insert puts a rule made by hand into f, and makes a name for it if it has none.
func Insert(f *filterplane.Filter, r filterplane.Rule, at Place) (name string, err error) {
	if r.Name == "" {
		r.Name = FreeName(f)
	}
	if indexRule(f.Rules, r.Name) >= 0 {
		return "", fmt.Errorf("there is a rule %s already: delete it first, or choose another name", r.Name)
	}
	if err := knownSets(f, r); err != nil {
		return "", err
	}
	n := len(f.Rules)
	switch {
	case at.First:
		n = 0
	case at.Before != "":
		if n = indexRule(f.Rules, at.Before); n < 0 {
			return "", noRule(at.Before)
		}
	}
	f.Rules = slices.Insert(slices.Clone(f.Rules), n, r)
	return r.Name, nil
}

func noRule(name string) error {
	return fmt.Errorf("no rule %s: see 'culvert filter list'", name)
}

func knownSets(f *filterplane.Filter, r filterplane.Rule) error {
	if _, set, ok := unknownSet(f, r); ok {
		return fmt.Errorf("rule %s: no set %s: make it with 'culvert filter set add %[2]s ...'", r.Name, set)
	}
	return nil
}

// unknownSet finds a set that a rule asks for and f does not have, and the part of the rule that does.
func unknownSet(f *filterplane.Filter, r filterplane.Rule) (part, set string, ok bool) {
	for n, ref := range slices.Concat(r.Src, r.Dst) {
		if indexSet(f.Sets, ref.Set) >= 0 {
			continue
		}
		if n < len(r.Src) {
			return PartSrc, ref.Set, true
		}
		return PartDst, ref.Set, true
	}
	return "", "", false
}

// Replace puts a rule in the place of the one of its name, whose counters it goes on with. A rule of the configuration
// file stays one: the file says anew what it does.
func Replace(f *filterplane.Filter, r filterplane.Rule) error {
	n := indexRule(f.Rules, r.Name)
	if n < 0 {
		return noRule(r.Name)
	}
	if err := knownSets(f, r); err != nil {
		return err
	}
	f.Rules = slices.Clone(f.Rules)
	r.File = f.Rules[n].File
	f.Rules[n] = r
	return nil
}

// ErrThere is for what is to be new, and is not.
var ErrThere = errors.New("it is there already")

// AddSet puts a new set into f; ErrThere if there is one of its name.
func AddSet(f *filterplane.Filter, s filterplane.Set) error {
	if indexSet(f.Sets, s.Name) >= 0 {
		return fmt.Errorf("set %s: %w", s.Name, ErrThere)
	}
	f.Sets = append(slices.Clone(f.Sets), s)
	return nil
}

// Delete takes rules out of f: all of them, or none and an error.
func Delete(f *filterplane.Filter, names []string) error {
	rules := slices.Clone(f.Rules)
	for _, name := range names {
		n := indexRule(rules, name)
		if n < 0 {
			if indexRule(f.Rules, name) >= 0 {
				continue // named twice
			}
			return noRule(name)
		}
		rules = slices.Delete(rules, n, n+1)
	}
	f.Rules = rules
	return nil
}

// DeleteSets takes sets out of f that no rule asks for.
func DeleteSets(f *filterplane.Filter, names []string) error {
	sets := slices.Clone(f.Sets)
	for _, name := range names {
		n := indexSet(sets, name)
		if n < 0 {
			return fmt.Errorf("no set %s: see 'culvert filter set list'", name)
		}
		for _, r := range f.Rules {
			if uses(r, name) {
				return fmt.Errorf("rule %s asks for set %s: delete the rule first", r.Name, name)
			}
		}
		sets = slices.Delete(sets, n, n+1)
	}
	f.Sets = sets
	return nil
}

func uses(r filterplane.Rule, set string) bool {
	return slices.ContainsFunc(slices.Concat(r.Src, r.Dst), func(ref filterplane.SetRef) bool { return ref.Set == set })
}

// Tables of the configuration file.
const (
	TableRule    = "rule"
	TableSet     = "set"
	TableProtect = "protect"
)

// FileError is about a table of the configuration file that does not go together with what is there.
type FileError struct {
	// Table is the kind, Name what the table says that it is called: of a service its address.
	Table, Name string
	// Part is the key that the error is about.
	Part string
	Err  error
}

func (e *FileError) Error() string { return e.Err.Error() }

func (e *FileError) Unwrap() error { return e.Err }

// TakenOver names the sets made by hand that are the file's from now on.
func TakenOver(running, file filterplane.Filter) (sets []string) {
	for _, s := range running.Sets {
		if !s.File && indexSet(file.Sets, s.Name) >= 0 {
			sets = append(sets, s.Name)
		}
	}
	return sets
}

// Merge puts the rules, sets and services of the configuration file in the place of those that an
// earlier file has left in running; what was made by hand stays, and becomes the file's where both have the same. The file's rules stand together, in
// the file's order, where the first of the earlier ones stood, or behind all others if there was none.
func Merge(running, file filterplane.Filter) (filterplane.Filter, error) {
	out := filterplane.Filter{Top: running.Top}
	at := slices.IndexFunc(running.Rules, func(r filterplane.Rule) bool { return r.File })
	if at < 0 {
		at = len(running.Rules)
	}
	var front, behind []filterplane.Rule
	for n, r := range running.Rules {
		if r.File {
			continue
		}
		if same := indexRule(file.Rules, r.Name); same >= 0 {
			if !sameRule(r, file.Rules[same]) {
				return out, &FileError{TableRule, r.Name, PartName, fmt.Errorf("rule %s is there already, made by hand: "+
					"delete it with 'culvert filter del %[1]s', or give it another name in the file", r.Name)}
			}
			continue // the file has taken it over
		}
		if n < at {
			front = append(front, r)
		} else {
			behind = append(behind, r)
		}
	}
	for _, r := range file.Rules {
		r.File = true
		front = append(front, r)
	}
	out.Rules = append(front, behind...)
	for _, s := range running.Sets {
		same := indexSet(file.Sets, s.Name)
		switch {
		case s.File: // the file says anew what it has
		case same < 0:
			out.Sets = append(out.Sets, s)
		case s.Endpoints != file.Sets[same].Endpoints:
			return out, &FileError{TableSet, s.Name, "type", fmt.Errorf("set %s is there already, made by hand, with members of "+
				"another type: delete it with 'culvert filter set del %[1]s', or give it another name in the file", s.Name)}
		}
	}
	for _, s := range file.Sets {
		s.File = true
		out.Sets = append(out.Sets, s)
	}
	if err := mergeServices(&out, running, file); err != nil {
		return out, err
	}
	for _, r := range out.Rules {
		part, set, ok := unknownSet(&out, r)
		switch {
		case !ok:
		case r.File:
			return out, &FileError{TableRule, r.Name, part, fmt.Errorf("rule %s: no set %s: put it into the file, "+
				"or make it with 'culvert filter set add %[2]s ...'", r.Name, set)}
		default:
			return out, fmt.Errorf("rule %s, made by hand, asks for set %s, which the file has no more: "+
				"delete the rule with 'culvert filter del %[1]s', or put the set back into the file", r.Name, set)
		}
	}
	return out, nil
}

func mergeServices(out *filterplane.Filter, running, file filterplane.Filter) error {
	for _, s := range running.Services {
		if s.File {
			continue
		}
		same := slices.IndexFunc(file.Services, func(o filterplane.Service) bool { return o.Addr == s.Addr })
		if same < 0 {
			out.Services = append(out.Services, s)
			continue
		}
		of := file.Services[same]
		of.File = false
		if of != s {
			return &FileError{TableProtect, s.Addr.String(), "address", fmt.Errorf("%s is protected already, by hand and in another way: "+
				"end that with 'culvert filter unprotect %[1]s', or say the same in the file", s.Addr)}
		}
	}
	for _, s := range file.Services {
		s.File = true
		out.Services = append(out.Services, s)
	}
	return nil
}

// sameRule compares what rules do.
func sameRule(a, b filterplane.Rule) bool {
	a.File, b.File = false, false
	return reflect.DeepEqual(normal(a), normal(b))
}

// normal gives empty lists one form.
func normal(r filterplane.Rule) filterplane.Rule {
	if len(r.Interfaces) == 0 {
		r.Interfaces = nil
	}
	if len(r.Src) == 0 {
		r.Src = nil
	}
	if len(r.Dst) == 0 {
		r.Dst = nil
	}
	if len(r.Code) == 0 {
		r.Code = nil
	}
	return r
}

// Protect puts a service into f.
func Protect(f *filterplane.Filter, s filterplane.Service) error {
	for n, other := range f.Services {
		if other.Addr != s.Addr {
			continue
		}
		if other.File {
			return fmt.Errorf("%s is protected by the configuration file: change it there", s.Addr)
		}
		f.Services = slices.Clone(f.Services)
		f.Services[n] = s
		return nil
	}
	f.Services = append(slices.Clone(f.Services), s)
	return nil
}

// Unprotect takes a service out of f.
func Unprotect(f *filterplane.Filter, a netip.AddrPort) error {
	n := slices.IndexFunc(f.Services, func(s filterplane.Service) bool { return s.Addr == a })
	if n < 0 {
		return fmt.Errorf("%s is not protected: see 'culvert filter list'", a)
	}
	f.Services = slices.Delete(slices.Clone(f.Services), n, n+1)
	return nil
}
