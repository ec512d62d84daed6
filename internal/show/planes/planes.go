// SPDX-License-Identifier: Apache-2.0

// Package planes opens running data planes for commands, which name one or mean the only one that there is.
package planes

import (
	"fmt"
	"slices"
	"strings"

	"culvert/internal/datapath"
	"culvert/internal/show/usage"
)

// Kind is what a command wants a data plane to be.
type Kind struct {
	// Name and Plural are its words: "load balancer", "load balancers".
	Name, Plural string
	// Is tells whether a data plane is one; nil is for all.
	Is func(*datapath.Instance) bool
	// None says what to do when there is none.
	None string
	// Anywhere means those of other network namespaces, too.
	Anywhere bool
}

// candidate is a data plane to choose from.
type candidate struct {
	name     string
	here, is bool
}

// Open opens the data plane of a name, "" for the only one. Of several of one name, the one in this network namespace is
// meant.
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

// All opens every data plane of a kind. That there is none is an error.
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
	var names []string // of the kind
	var meant []int
	named := false
	for n, c := range all {
		named = named || c.name == name
		if !c.is {
			continue
		}
		names = append(names, c.name)
		if name == "" || c.name == name {
			meant = append(meant, n)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	switch {
	case len(meant) == 1:
		return meant[0], nil
	case name == "" && len(meant) == 0:
		return 0, k.none()
	case name == "" && len(names) == 1: // in several network namespaces
		return k.choose(all, names[0])
	case name == "":
		return 0, usage.Errorf("there are %d %s %s: say --on with one of %s", len(meant), k.Plural, k.where(), strings.Join(names, ", "))
	}
	there := k.None
	if len(names) > 0 {
		there = "there is " + strings.Join(names, ", ")
	}
	switch here := slices.IndexFunc(meant, func(n int) bool { return all[n].here }); {
	case here >= 0:
		return meant[here], nil
	case len(meant) > 0:
		return 0, fmt.Errorf("%d data planes are called %s: run the command in the network namespace of the one you mean", len(meant), name)
	case named:
		return 0, fmt.Errorf("data plane %s is no %s: %s", name, k.Name, there)
	default:
		return 0, fmt.Errorf("no data plane %s %s: %s", name, k.where(), there)
	}
}

func (k Kind) none() error { return fmt.Errorf("no %s %s: %s", k.Name, k.where(), k.None) }

func (k Kind) where() string {
	if k.Anywhere {
		return "on this machine"
	}
	return "in this network namespace"
}
