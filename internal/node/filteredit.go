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

// AddRule adds a rule to the filter of a data plane and writes to out what it has done. on names the data plane, "" is the
// only one. With replace the rule takes the place and the counters of the rule of the same name.
func AddRule(on string, spec filter.Spec, at filter.Place, replace bool, out io.Writer) error {
	rule, err := spec.Rule() // an error leaves the data plane as it is
	if err != nil {
		return err
	}
	return edit(on, func(inst *datapath.Instance) error {
		if err := checkInterfaces(rule, interfacesOf(inst)); err != nil {
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
		noteFileRules(before, []string{name}, out)
		noteUnattached(inst, out)
		noteMissing(inst, rule.Interfaces, out)
		return nil
	})
}

// edit opens the data plane on, or the only one if on is "", for a change of its filter.
func edit(on string, change func(*datapath.Instance) error) error {
	inst, err := filterview.Open(on)
	if err != nil {
		return err
	}
	defer inst.Close()
	return change(inst)
}

// change edits the filter of a data plane with f.
func change(inst *datapath.Instance, f func(*filterplane.Filter) error) error {
	return carryOut(inst, filterstage.Edit{Change: f})
}

// DeleteRules deletes rules from the filter of a data plane: all that are named, or none if one does not exist.
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
		noteFileRules(before, names, out)
		noteUnattached(inst, out)
		return nil
	})
}

// noteFileRules writes which of the named rules come from the configuration file, since these come back.
func noteFileRules(rules []filterplane.Rule, names []string, out io.Writer) {
	var fromFile []string
	for _, name := range names {
		for _, r := range rules {
			if r.Name == name && r.File {
				fromFile = append(fromFile, name)
			}
		}
	}
	if len(fromFile) > 0 {
		fmt.Fprintf(out, "the configuration file brings %s back when it is read again\n", strings.Join(fromFile, ", "))
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}

// Flush deletes all rules from the filter of a data plane, and with all also its sets and protected services.
func Flush(on string, all bool, out io.Writer) error {
	return edit(on, func(inst *datapath.Instance) error {
		var before filterplane.Filter
		err := change(inst, func(f *filterplane.Filter) error {
			before = *f
			filter.Flush(f)
			if all {
				f.Sets, f.Services, f.Top = nil, nil, filterplane.TopOff
			}
			return nil
		})
		if err != nil {
			return err
		}
		deleted := filterview.Summary(len(before.Rules), 0, 0)
		if all {
			deleted = filterview.Summary(len(before.Rules), len(before.Sets), len(before.Services))
		}
		if deleted == "" {
			deleted = "nothing"
		}
		fmt.Fprintf(out, "%s deleted\n", deleted)
		noteUnattached(inst, out)
		return nil
	})
}

// Protect protects a service against SYN floods.
func Protect(on string, s filterplane.Service, out io.Writer) error {
	return edit(on, func(inst *datapath.Instance) error {
		if err := change(inst, func(f *filterplane.Filter) error { return filter.Protect(f, s) }); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s is protected: see 'culvert doctor' for what the host needs\n", s.Addr)
		if elsewhere, err := hostaddr.Elsewhere([]netip.AddrPort{s.Addr}); err == nil && len(elsewhere) > 0 && !s.Forwarded {
			advice := "for one behind this host say --forwarded"
			if routeplane.OptionsOf(inst) != nil {
				advice = "one behind this host cannot be protected beside the IP router"
			}
			fmt.Fprintf(out, "this host does not have the address %s: no connection to the service comes about until it has; %s\n", s.Addr.Addr(), advice)
		}
		noteUnattached(inst, out)
		return nil
	})
}

// Unprotect ends the protection of a service.
func Unprotect(on string, addr netip.AddrPort, out io.Writer) error {
	return edit(on, func(inst *datapath.Instance) error {
		if err := change(inst, func(f *filterplane.Filter) error { return filter.Unprotect(f, addr) }); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s is not protected any more\n", addr)
		noteUnattached(inst, out)
		return nil
	})
}

// interfacesOf returns the interfaces that a data plane is attached to, and those that it attaches to once they exist again.
// The names are sorted.
func interfacesOf(inst *datapath.Instance) []string {
	all := slices.Concat(inst.Attached(), inst.Configured())
	slices.Sort(all)
	return slices.Compact(all)
}

// noteMissing writes which interfaces of a rule do not carry the data plane now, while others do.
func noteMissing(inst *datapath.Instance, interfaces []string, out io.Writer) {
	var missing []string
	for _, u := range inst.Unattached() {
		if slices.Contains(interfaces, u.Interface) {
			missing = append(missing, u.Interface)
		}
	}
	if len(missing) > 0 && len(inst.Attached()) > 0 {
		fmt.Fprintf(out, "%s is not on %s now: there the rule is in force once it is attached again\n", inst.Name(), strings.Join(missing, " and "))
	}
}

// noteUnattached writes that a change has no effect yet, if the data plane is attached to no interface.
func noteUnattached(inst *datapath.Instance, out io.Writer) {
	if len(inst.Attached()) > 0 {
		return
	}
	fmt.Fprintf(out, "%s is on no interface now: this is in force once %s is there again\n", inst.Name(), strings.Join(inst.Configured(), " or "))
}

// checkInterfaces returns an error if a rule names an interface that is not in known. Such a rule would never see a packet.
func checkInterfaces(r filterplane.Rule, known []string) error {
	for _, name := range r.Interfaces {
		if !slices.Contains(known, name) {
			return fmt.Errorf("rule for %s: the data plane is not attached to it, but to %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}
