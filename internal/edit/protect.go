// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"context"
	"fmt"
	"net/netip"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/host/hostaddr"
	"culvert/internal/route/routeplane"
	"culvert/internal/show/usage"
)

// ServiceProtect asks for a TCP service to be protected from floods of SYNs.
type ServiceProtect struct {
	onFilter
	// Service is its address and port: 192.0.2.1:80, [2001:db8::1]:443.
	Service string `json:"service"`
	// Forwarded says that the service is on another host.
	Forwarded bool `json:"forwarded,omitempty"`
	// MSS and WindowScale are those of a forwarded service, 1460 and 7 if they are left out.
	MSS         uint16 `json:"mss,omitempty"`
	WindowScale uint8  `json:"wscale,omitempty"`
}

func (p *ServiceProtect) service() (s filterplane.Service, err error) {
	s = filterplane.Service{Forwarded: p.Forwarded, MSS: p.MSS, WindowScale: p.WindowScale}
	if s.Addr, err = filter.ParseService(p.Service); err != nil {
		return s, usage.Error(err)
	}
	if _, err := filter.CheckService(s); err != nil {
		return s, usage.Error(fmt.Errorf("--%w", err))
	}
	return s, nil
}

// Check implements Request.
func (p *ServiceProtect) Check() error {
	_, err := p.service()
	return err
}

func (p *ServiceProtect) do(_ context.Context, inst *datapath.Instance, r *Result) error {
	s, err := p.service()
	if err != nil {
		return err
	}
	if err := change(inst, func(f *filterplane.Filter) error { return filter.Protect(f, s) }); err != nil {
		return err
	}
	fmt.Fprintf(r, "%s is protected: see 'culvert doctor' for what the host needs\n", s.Addr)
	if elsewhere, err := hostaddr.Elsewhere([]netip.AddrPort{s.Addr}); err == nil && len(elsewhere) > 0 && !s.Forwarded {
		advice := "for one behind this host say --forwarded"
		if routeplane.OptionsOf(inst) != nil {
			advice = "one behind this host cannot be protected beside the IP router"
		}
		fmt.Fprintf(r, "this host does not have the address %s: no connection to the service comes about until it has; %s\n", s.Addr.Addr(), advice)
	}
	noteUnattached(inst, r)
	return nil
}

// ServiceUnprotect asks for the end of the protection of a service.
type ServiceUnprotect struct {
	onFilter
	// Service is its address and port.
	Service string `json:"service"`
}

// Check implements Request.
func (u *ServiceUnprotect) Check() error {
	_, err := filter.ParseService(u.Service)
	if err != nil {
		return usage.Error(err)
	}
	return nil
}

func (u *ServiceUnprotect) do(_ context.Context, inst *datapath.Instance, r *Result) error {
	addr, err := filter.ParseService(u.Service)
	if err != nil {
		return usage.Error(err)
	}
	if err := change(inst, func(f *filterplane.Filter) error { return filter.Unprotect(f, addr) }); err != nil {
		return err
	}
	fmt.Fprintf(r, "%s is not protected any more\n", addr)
	noteUnattached(inst, r)
	return nil
}
