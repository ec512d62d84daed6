// SPDX-License-Identifier: Apache-2.0

// Package planes opens running data planes for commands: the one that the user names, or the only one.
package planes

import (
	"fmt"
	"slices"
	"strings"

	"culvert/internal/datapath"
	"culvert/internal/show/usage"
)

// Kind is a kind of data plane that a command works on.
type Kind struct {
	// Name and Plural are the words for it in errors: "load balancer", "load balancers".
	Name, Plural string
	// Is tells whether a data plane is of this kind. Without it all of them are.
	Is func(*datapath.Instance) bool
	// None says what to do if there is none.
	None string
	// Anywhere includes the data planes of other network namespaces.
	Anywhere bool
}

// AbsentError says that there is no data plane as it is asked for.
type AbsentError struct{ text string }

func (e *AbsentError) Error() string { return e.text }

// Absent returns an AbsentError.
func Absent(format string, args ...any) error { return &AbsentError{fmt.Sprintf(format, args...)} }

// candidate is a data plane to choose from. here tells whether it is in this network namespace, and is whether it is of the
// kind.
type candidate struct {
	name     string
	here, is bool
}

// Open opens the data plane with a name, or the only one for "". If several have the name, it opens the one in this network
// namespace. Which one is meant may be unclear: that is a usage error.
func Open(name string, k Kind) (*datapath.Instance, error) {
	all, err := k.list()
	if err != nil {
		return nil, err
	}
	candidates := make([]candidate, len(all))
	for n, i := range all {
		candidates[n] = candidate{i.Name(), i.Here(), k.Is == nil || k.Is(i)}
	}
	chosen, err := k.choose(candidates, name)
	for n, i := range all {
		if err != nil || n != chosen {
			i.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	return all[chosen], nil
}

// All opens every data plane of a kind. It returns an error if there is none.
func All(k Kind) ([]*datapath.Instance, error) {
	all, err := k.list()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(i *datapath.Instance) bool {
		if k.Is == nil || k.Is(i) {
			return false
		}
		i.Close()
		return true
	})
	if len(all) == 0 {
		return nil, k.none()
	}
	return all, nil
}

func (k Kind) list() ([]*datapath.Instance, error) {
	if k.Anywhere {
		return datapath.List()
	}
	return datapath.ListHere()
}

// choose returns the index of the data plane that a name stands for.
func (k Kind) choose(all []candidate, name string) (int, error) {
	var names []string // of all data planes of the kind
	var matches []int  // indices of those of the kind with the name
	named := false
	for n, c := range all {
		named = named || c.name == name
		if !c.is {
			continue
		}
		names = append(names, c.name)
		if name == "" || c.name == name {
			matches = append(matches, n)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	switch {
	case len(matches) == 1:
		return matches[0], nil
	case name == "" && len(matches) == 0:
		return 0, k.none()
	case name == "" && len(names) == 1: // one name in several network namespaces
		return k.choose(all, names[0])
	case name == "":
		return 0, usage.Errorf("there are %d %s %s: use --on with one of %s", len(matches), k.Plural, k.where(), strings.Join(names, ", "))
	}
	there := k.None
	if len(names) > 0 {
		there = "there is " + strings.Join(names, ", ")
	}
	switch here := slices.IndexFunc(matches, func(n int) bool { return all[n].here }); {
	case here >= 0:
		return matches[here], nil
	case len(matches) > 0:
		return 0, fmt.Errorf("%d data planes are called %s: run the command in the network namespace of the one you mean", len(matches), name)
	case named:
		return 0, &AbsentError{fmt.Sprintf("data plane %s is no %s: %s", name, k.Name, there)}
	default:
		return 0, &AbsentError{fmt.Sprintf("no data plane %s %s: %s", name, k.where(), there)}
	}
}

func (k Kind) none() error {
	return &AbsentError{fmt.Sprintf("no %s %s: %s", k.Name, k.where(), k.None)}
}

func (k Kind) where() string {
	if k.Anywhere {
		return "on this machine"
	}
	return "in this network namespace"
}
