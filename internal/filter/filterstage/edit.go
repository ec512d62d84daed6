// SPDX-License-Identifier: Apache-2.0

package filterstage

import (
	"net/netip"
	"slices"

	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/stage"
)

// Edit is a change of rules, sets and protected services by hand.
type Edit struct {
	// Change changes the filter. The result is checked before it comes into force.
	Change func(*filterplane.Filter) error
}

// Name implements stage.Edit.
func (Edit) Name() string { return filterplane.Stage }

// Apply implements stage.Edit.
func (e Edit) Apply(inst *datapath.Instance, check func(stage.Checker) error) error {
	return filterplane.Edit(inst, func(f *filterplane.Filter) error {
		before := slices.Clone(f.Services)
		if err := e.Change(f); err != nil {
			return err
		}
		return check(edited{before: before, services: f.Services})
	})
}

// Now implements stage.Editable.
func (Stage) Now(inst *datapath.Instance) (stage.Checker, error) {
	f, err := filterplane.Read(inst)
	if err != nil {
		return nil, err
	}
	return edited{before: f.Services, services: f.Services}, nil
}

// edited has the protected services of a data plane before a change and after it, those of the file and those made by hand.
type edited struct{ before, services []filterplane.Service }

// Name implements stage.Checker.
func (edited) Name() string { return filterplane.Stage }

// Check implements stage.Checker. The other stages find what contradicts a protected service.
func (edited) Check(stage.Situation) error { return nil }

// Protected returns the services that are protected by SYN cookies: those from before that stay, and those that the change adds.
func (e edited) Protected(*datapath.Instance) (before, added []netip.AddrPort, err error) {
	return e.pick(func(filterplane.Service) bool { return true })
}

// Forwarded returns the added services that are behind this host. Those from before are left out: they were accepted when the host
// still had their addresses, and must not keep the user from changing something else.
func (e edited) Forwarded(*datapath.Instance) (before, added []netip.AddrPort, err error) {
	_, added, err = e.pick(func(s filterplane.Service) bool { return s.Forwarded })
	return nil, added, err
}

// pick returns the services after the change for which match is true. Before has those for which it was true before, too.
func (e edited) pick(match func(filterplane.Service) bool) (before, added []netip.AddrPort, err error) {
	known := make(map[netip.AddrPort]bool)
	for _, s := range e.before {
		known[s.Addr] = match(s)
	}
	for _, s := range e.services {
		switch {
		case !match(s):
		case known[s.Addr]:
			before = append(before, s.Addr)
		default:
			added = append(added, s.Addr)
		}
	}
	return before, added, nil
}

// LocateService returns the error as it is: a service made by hand has no position in a file.
func (edited) LocateService(_ netip.AddrPort, err error) error { return err }
