// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterstage"
	"culvert/internal/filter/filterview"
	"culvert/internal/host/hostaddr"
	"culvert/internal/route/routeplane"
)

// AddRule puts a rule into the filter of a data plane, and tells out. With replace it takes the place and the counters of
// the rule of its name.
func AddRule(on string, spec filter.Spec, at filter.Place, replace bool, out io.Writer) error {
	rule, err := spec.Rule() // before anything is touched
	if err != nil {
		return err
	}
	return edit(on, func(inst *datapath.Instance) error {
		if err := onInterfaces(rule, union(inst)); err != nil {
			return err
		}
		name, verb := rule.Name, "replaced"
		var before []filterplane.Rule
		err := change(inst, func(f *filterplane.Filter) (err error) {
			if replace {
				before = f.Rules
				return filter.Replace(f, rule)
			}
			verb = "added"
			name, err = filter.Insert(f, rule, at)
			return err
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "rule %s %s\n", name, verb)
		tellFile(before, []string{name}, out)
		tellNowhere(inst, out)
		tellMissing(inst, rule.Interfaces, out)
		return nil
	})
}

// edit opens a data plane for a change of its filter.
func edit(on string, change func(*datapath.Instance) error) error {
	inst, err := filterview.Open(on)
	if err != nil {
		return err
	}
	defer inst.Close()
	return change(inst)
}

// change carries out a change of a data plane's filter.
func change(inst *datapath.Instance, f func(*filterplane.Filter) error) error {
	return carryOut(inst, filterstage.Edit{Change: f})
}

// DeleteRules takes rules out of the filter of a data plane: all that are named, or none.
func DeleteRules(on string, names []string, out io.Writer) error {
	return edit(on, func(inst *datapath.Instance) error {
		var before []filterplane.Rule
		err := change(inst, func(f *filterplane.Filter) error {
			before = f.Rules
			return filter.Delete(f, names)
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s %s deleted\n", plural(len(names), "rule"), strings.Join(names, ", "))
		tellFile(before, names, out)
		tellNowhere(inst, out)
		return nil
	})
}

// tellFile says that rules of the configuration file come back as they are there.
func tellFile(rules []filterplane.Rule, names []string, out io.Writer) {
	var file []string
	for _, name := range names {
		for _, r := range rules {
			if r.Name == name && r.File {
				file = append(file, name)
			}
		}
	}
	if len(file) > 0 {
		fmt.Fprintf(out, "the configuration file brings %s back when it is read again\n", strings.Join(file, ", "))
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}

// Flush takes all rules out of the filter of a data plane, with all also its sets and services.
func Flush(on string, all bool, out io.Writer) error {
	return edit(on, func(inst *datapath.Instance) error {
		var before filterplane.Filter
		err := change(inst, func(f *filterplane.Filter) error {
			before = *f
			f.Rules = nil
			if all {
				f.Sets, f.Services, f.Top = nil, nil, filterplane.TopOff
			}
			return nil
		})
		if err != nil {
			return err
		}
		gone := filterview.Summary(len(before.Rules), 0, 0)
		if all {
			gone = filterview.Summary(len(before.Rules), len(before.Sets), len(before.Services))
		}
		if gone == "" {
			gone = "nothing"
		}
		fmt.Fprintf(out, "%s deleted\n", gone)
		tellNowhere(inst, out)
		return nil
	})
}

// Protect protects a service against floods of SYNs.
func Protect(on string, s filterplane.Service, out io.Writer) error {
	return edit(on, func(inst *datapath.Instance) error {
		if err := change(inst, func(f *filterplane.Filter) error { return filter.Protect(f, s) }); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s is protected: see 'culvert doctor' for what the host has to be like\n", s.Addr)
		if not, err := hostaddr.Elsewhere([]netip.AddrPort{s.Addr}); err == nil && len(not) > 0 && !s.Forwarded {
			behind := "for one behind this host say --forwarded"
			if routeplane.OptionsOf(inst) != nil {
				behind = "one behind this host cannot be protected beside the IP router"
			}
			fmt.Fprintf(out, "this host does not have the address %s: no connection to the service comes about until it has; %s\n", s.Addr.Addr(), behind)
		}
		tellNowhere(inst, out)
		return nil
	})
}

// Unprotect ends that.
func Unprotect(on string, addr netip.AddrPort, out io.Writer) error {
	return edit(on, func(inst *datapath.Instance) error {
		if err := change(inst, func(f *filterplane.Filter) error { return filter.Unprotect(f, addr) }); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s is not protected any more\n", addr)
		tellNowhere(inst, out)
		return nil
	})
}

// union is where a data plane is, or will be once an interface is there again.
func union(inst *datapath.Instance) []string {
	all := slices.Concat(inst.Attached(), inst.Configured())
	slices.Sort(all)
	return slices.Compact(all)
}

// tellMissing names the interfaces of a rule that are not there, while others are: packets of these the rule does not see.
func tellMissing(inst *datapath.Instance, of []string, out io.Writer) {
	var gone []string
	for _, u := range inst.Unattached() {
		if slices.Contains(of, u.Interface) {
			gone = append(gone, u.Interface)
		}
	}
	if len(gone) > 0 && len(inst.Attached()) > 0 {
		fmt.Fprintf(out, "%s is not on %s now: there the rule is in force once it is attached again\n", inst.Name(), strings.Join(gone, " and "))
	}
}

// tellNowhere says what a change means while there is no interface.
func tellNowhere(inst *datapath.Instance, out io.Writer) {
	if len(inst.Attached()) > 0 {
		return
	}
	fmt.Fprintf(out, "%s is on no interface now: this is in force once %s is there again\n", inst.Name(), strings.Join(inst.Configured(), " or "))
}

// onInterfaces refuses a rule for packets that the data plane will not see, not even when an interface is made again.
func onInterfaces(r filterplane.Rule, attached []string) error {
	for _, name := range r.Interfaces {
		if !slices.Contains(attached, name) {
			return fmt.Errorf("rule for %s: the data plane is not attached to it, but to %s", name, strings.Join(attached, ", "))
		}
	}
	return nil
}
