// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"errors"
	"net/netip"
	"slices"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
)

// Concerns tells whether a data plane, nil for none, has what a request for many of them is about. What adds a rule, a set or a protected service
// concerns each of them, what adds a VIP each load balancer, and what changes or deletes something those that have it. A name that is not
// right concerns all: carrying the request out says what is wrong.
func Concerns(q Request, inst *datapath.Instance) (bool, error) {
	switch q := q.(type) {
	case *RuleDel:
		return onFilterOf(inst, func(f filterplane.Filter) bool {
			return slices.ContainsFunc(f.Rules, func(r filterplane.Rule) bool { return slices.Contains(q.Rules, r.Name) })
		})
	case *SetDel:
		return onFilterOf(inst, func(f filterplane.Filter) bool {
			return slices.ContainsFunc(f.Sets, func(s filterplane.Set) bool { return s.Name == q.Set })
		})
	case *ServiceUnprotect:
		a, err := filter.ParseService(q.Service)
		return onFilterOf(inst, func(f filterplane.Filter) bool {
			return err != nil || slices.ContainsFunc(f.Services, func(s filterplane.Service) bool { return s.Addr == a })
		})
	case *VIPAdd:
		return inst != nil && lbplane.OptionsOf(inst) != nil, nil
	case *VIPSet:
		return onVIPs(inst, q.VIP, nil)
	case *VIPDel:
		return onVIPs(inst, q.VIP, nil)
	case *BackendAdd:
		return onVIPs(inst, q.VIP, nil)
	case *BackendSet:
		return onVIPs(inst, q.VIP, &q.Backend)
	case *BackendDel:
		return onVIPs(inst, q.VIP, &q.Backend)
	case *Drain:
		return onVIPs(inst, q.VIP, q.Backend)
	case *Undrain:
		return onVIPs(inst, q.VIP, q.Backend)
	}
	return true, nil
}

func onFilterOf(inst *datapath.Instance, has func(filterplane.Filter) bool) (bool, error) {
	if inst == nil {
		return false, nil
	}
	f, err := filterplane.Read(inst)
	return err == nil && has(f), err
}

// onVIPs tells whether a data plane has a VIP, "" for any, with a backend unless that is nil.
func onVIPs(inst *datapath.Instance, vip string, backend *string) (bool, error) {
	var a netip.Addr
	if backend != nil {
		var err error
		if a, err = lb.ParseBackend(*backend); err != nil {
			return true, nil //nolint:nilerr // carrying it out says so
		}
	}
	service, err := lb.ParseService(vip)
	var lacks *lb.NoProtocolError
	if vip != "" && err != nil && !errors.As(err, &lacks) {
		return true, nil
	}
	if inst == nil {
		return false, nil
	}
	state, err := lbState(inst)
	return slices.ContainsFunc(state.VIPs, func(v lb.VIP) bool {
		switch {
		case vip == "":
		case lacks != nil:
			if v.Service.Addr != lacks.Addr || lacks.Port != 0 && v.Service.Port != lacks.Port {
				return false
			}
		case v.Service != service:
			return false
		}
		return backend == nil || slices.ContainsFunc(v.Backends, func(b lb.Backend) bool { return b.Addr == a })
	}), err
}
