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

// Place says where a new rule is inserted: in front of all others, in front of the rule named Before, or else after all others.
type Place struct {
	First  bool
	Before string
}

// Insert adds a rule made by hand to f. It returns the rule's name, which it makes up if the rule has none. It is an error if
// there is a rule of that name, no rule at.Before, or if f does not have a set that the rule uses.
func Insert(f *filterplane.Filter, r filterplane.Rule, at Place) (name string, err error) {
	if r.Name == "" {
		r.Name = freeName(f)
	}
	if indexRule(f.Rules, r.Name) >= 0 {
		return "", fmt.Errorf("there is a rule %s already: replace it with --replace, or choose another --name", r.Name)
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

// knownSets returns an error if f does not have all sets that a rule uses.
func knownSets(f *filterplane.Filter, r filterplane.Rule) error {
	if _, set, ok := unknownSet(f, r); ok {
		return fmt.Errorf("rule %s: no set %s: make it with 'culvert filter set add %[2]s ...'", r.Name, set)
	}
	return nil
}

// unknownSet returns the first set that a rule uses and f does not have, with the part of the rule that uses it. It is false if
// there is none.
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

// Replace replaces the rule of the same name, which keeps its counters. A rule of the configuration file remains one, so that the
// next start reads it from the file again.
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

// ErrExists is the error of AddSet if there is a set of that name.
var ErrExists = errors.New("it exists already")

// AddSet adds a set to f.
func AddSet(f *filterplane.Filter, s filterplane.Set) error {
	if indexSet(f.Sets, s.Name) >= 0 {
		return fmt.Errorf("set %s: %w", s.Name, ErrExists)
	}
	f.Sets = append(slices.Clone(f.Sets), s)
	return nil
}

// Delete removes rules from f, given their names. On an error it removes none.
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
	rememberNames(f)
	f.Rules = rules
	return nil
}

// Flush removes all rules from f.
func Flush(f *filterplane.Filter) {
	rememberNames(f)
	f.Rules = nil
}

// DeleteSets removes sets from f, given their names. On an error, as when a rule uses one of them, it removes none.
func DeleteSets(f *filterplane.Filter, names []string) error {
	sets := slices.Clone(f.Sets)
	for _, name := range names {
		n := indexSet(sets, name)
		if n < 0 {
			return fmt.Errorf("no set %s: see 'culvert filter set list'", name)
		}
		for _, r := range f.Rules {
			if uses(r, name) {
				return fmt.Errorf("rule %s uses set %s: delete the rule first", r.Name, name)
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

// Tables of the configuration file, below [filter].
const (
	TableRule    = "rule"
	TableSet     = "set"
	TableProtect = "protect"
)

// FileError is an error about a table of the configuration file.
type FileError struct {
	// Table is TableRule, TableSet or TableProtect. Name is the name in the table, the address of a service.
	Table, Name string
	// Part is the key that the error is about.
	Part string
	Err  error
}

func (e *FileError) Error() string { return e.Err.Error() }

func (e *FileError) Unwrap() error { return e.Err }

// TakenOver returns the names of the sets made by hand that are in the file too, and so become the file's.
func TakenOver(running, file filterplane.Filter) (sets []string) {
	for _, s := range running.Sets {
		if !s.File && indexSet(file.Sets, s.Name) >= 0 {
			sets = append(sets, s.Name)
		}
	}
	return sets
}

// Merge returns running with the rules, sets and services of the configuration file in place of those of an earlier file. What was
// made by hand stays. It becomes the file's if the file has the same, and is an error if the file has another one of that name.
// The file's rules are a block in the file's order, where the first rule of the earlier file was, or after all others.
func Merge(running, file filterplane.Filter) (filterplane.Filter, error) {
	out := filterplane.Filter{Top: running.Top, Named: running.Named}
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
			continue // it is the file's from now on
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
		case s.File: // the file's sets are added below
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
			return out, fmt.Errorf("rule %s, made by hand, uses set %s, which is no longer in the file: "+
				"delete the rule with 'culvert filter del %[1]s', or put the set back into the file", r.Name, set)
		}
	}
	return out, nil
}

// mergeServices is Merge for services. It adds them to out.
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
		other := file.Services[same]
		other.File = false
		if other != s {
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

// SameRule tells whether two rules are equal, no matter where they come from.
func SameRule(a, b filterplane.Rule) bool { return sameRule(a, b) }

// Uses tells whether a rule refers to a set.
func Uses(r filterplane.Rule, set string) bool { return uses(r, set) }

// sameRule tells whether two rules are equal, no matter where they come from.
func sameRule(a, b filterplane.Rule) bool {
	a.File, b.File = false, false
	return reflect.DeepEqual(normal(a), normal(b))
}

// normal returns r with nil for all empty lists.
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

// Protect adds a service made by hand to f, or replaces the one of its address. It is an error if that one is the file's.
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

// Unprotect removes a service from f.
func Unprotect(f *filterplane.Filter, a netip.AddrPort) error {
	n := slices.IndexFunc(f.Services, func(s filterplane.Service) bool { return s.Addr == a })
	if n < 0 {
		return fmt.Errorf("%s is not protected: see 'culvert filter list'", a)
	}
	f.Services = slices.Delete(slices.Clone(f.Services), n, n+1)
	return nil
}
