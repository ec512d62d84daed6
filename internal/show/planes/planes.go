// SPDX-License-Identifier: Apache-2.0

// Package planes opens running data planes for commands: the one that the user names, or the only one.
package planes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"culvert/internal/datapath"
	"culvert/internal/host/netnsname"
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
		return nil, k.orElsewhere(err, name)
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
		return nil, k.orElsewhere(k.none(), "")
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

// place is where a data plane is: in the network namespace of that name, or in one without a name.
type place struct{ name, netns string }

// orElsewhere adds to an AbsentError where there is a data plane as it is asked for, if that is in another network namespace.
func (k Kind) orElsewhere(err error, name string) error {
	var absent *AbsentError
	if k.Anywhere || !errors.As(err, &absent) {
		return err
	}
	all, listErr := datapath.List()
	if listErr != nil {
		return err
	}
	names := netnsname.All()
	var places []place
	for _, i := range all {
		if !i.Here() && (name == "" || i.Name() == name) && (k.Is == nil || k.Is(i)) {
			places = append(places, place{i.Name(), names[i.NetNS()]})
		}
		i.Close()
	}
	return k.elsewhere(err, name, places)
}

// elsewhere returns an error that says where the data planes of a name, or all of them for "", are; err if there are none.
func (k Kind) elsewhere(err error, name string, places []place) error {
	if len(places) == 0 {
		return err
	}
	var texts []string
	command := "see 'culvert status'"
	for _, p := range places {
		where := "another one"
		if p.netns != "" {
			where = p.netns
			if len(places) == 1 {
				command = fmt.Sprintf("'ip netns exec %s culvert ...' works on it", p.netns)
			} else {
				command = "'ip netns exec NAMESPACE culvert ...' works on one of them"
			}
		}
		texts = append(texts, p.name+" is in "+where)
	}
	what := k.Name
	if name != "" {
		what = "data plane " + name
	}
	return &AbsentError{fmt.Sprintf("no %s %s, but %s: %s", what, k.where(), strings.Join(texts, ", "), command)}
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
