// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"io"
	"net/netip"

	"culvert/internal/datapath"
	"culvert/internal/host/hostaddr"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/lbstage"
	"culvert/internal/lb/lbview"
)

// LBEditor changes a load balancer.
type LBEditor struct {
	// On names the data plane; "" is the only one of this network namespace that has a load balancer.
	On  string
	Out io.Writer
}

// edit changes the load balancer and writes what to Out. change returns file = true if the configuration file has other
// values.
func (e LBEditor) edit(ctx context.Context, what string, change func(*lb.State) (file bool, err error)) error {
	inst, err := lbview.Open(e.On)
	if err != nil {
		return err
	}
	defer inst.Close()
	var file bool
	err = carryOut(inst, lbstage.Edit{Change: func(s *lb.State) (err error) {
		file, err = change(s)
		return err
	}})
	if err != nil {
		return err
	}
	fmt.Fprintln(e.Out, what)
	if file {
		fmt.Fprintln(e.Out, "the configuration file says otherwise: what it says comes back when it is read again")
	}
	if inst.Served() {
		return nil // the process resolves the next hops of new backends
	}
	return lbstage.Settle(ctx, inst, e.Out)
}

// AddVIP adds a VIP without backends.
func (e LBEditor) AddVIP(ctx context.Context, k lb.Service, s lb.VIPSpec) error {
	return e.edit(ctx, fmt.Sprintf("VIP %s added", k), func(state *lb.State) (bool, error) { return false, state.AddVIP(k, s) })
}

// SetVIP changes a VIP.
func (e LBEditor) SetVIP(ctx context.Context, k lb.Service, s lb.VIPSpec) error {
	return e.edit(ctx, fmt.Sprintf("VIP %s changed", k), func(state *lb.State) (bool, error) { return state.SetVIP(k, s) })
}

// DeleteVIP deletes a VIP with its backends.
func (e LBEditor) DeleteVIP(ctx context.Context, k lb.Service) error {
	return e.edit(ctx, fmt.Sprintf("VIP %s deleted", k), func(state *lb.State) (bool, error) { return state.DeleteVIP(k) })
}

// AddBackend adds a backend to a VIP. It writes a warning if the backend's address is one of this host.
func (e LBEditor) AddBackend(ctx context.Context, k lb.Service, a netip.Addr, s lb.BackendSpec) error {
	err := e.edit(ctx, fmt.Sprintf("VIP %s: backend %s added", k, a), func(state *lb.State) (bool, error) {
		return false, state.AddBackend(k, a, s)
	})
	if err != nil {
		return err
	}
	if elsewhere, err := hostaddr.Elsewhere([]netip.AddrPort{netip.AddrPortFrom(a, 0)}); err == nil && len(elsewhere) == 0 {
		fmt.Fprintf(e.Out, "this host has the address %s: no packet gets to that backend as long as it has; see 'culvert lb backend del'\n", a)
	}
	return nil
}

// SetBackend changes a backend.
func (e LBEditor) SetBackend(ctx context.Context, k lb.Service, a netip.Addr, s lb.BackendSpec) error {
	return e.edit(ctx, fmt.Sprintf("VIP %s: backend %s changed", k, a), func(state *lb.State) (bool, error) {
		return state.SetBackend(k, a, s)
	})
}

// DeleteBackend deletes a backend of a VIP.
func (e LBEditor) DeleteBackend(ctx context.Context, k lb.Service, a netip.Addr) error {
	return e.edit(ctx, fmt.Sprintf("VIP %s: backend %s deleted", k, a), func(state *lb.State) (bool, error) {
		return state.DeleteBackend(k, a)
	})
}

// Drain drains a backend, or the VIP if the backend's address is invalid. With drained = false it undoes that.
func (e LBEditor) Drain(ctx context.Context, k lb.Service, a netip.Addr, drained bool) error {
	what := fmt.Sprintf("VIP %s", k)
	if a.IsValid() {
		what += fmt.Sprintf(": backend %s", a)
	}
	result := map[bool]string{true: " is drained", false: " is not drained any more"}[drained]
	return e.edit(ctx, what+result, func(state *lb.State) (bool, error) { return false, state.Drain(k, a, drained) })
}

// LBDataPlanes lists the data planes of this network namespace that have a load balancer, for a shell to complete.
func LBDataPlanes() []string {
	return collect(datapath.ListHere, func(i *datapath.Instance) []string {
		if lbplane.OptionsOf(i) == nil {
			return nil
		}
		return []string{i.Name()}
	})
}

// LBVIPs lists the VIPs of these data planes.
func LBVIPs() []string {
	return ofVIPs(func(v lb.VIP) []string { return []string{v.Service.String()} })
}

// LBBackends lists the backends of a VIP.
func LBBackends(vip string) []string {
	return ofVIPs(func(v lb.VIP) (names []string) {
		if v.Service.String() == vip {
			for _, b := range v.Backends {
				names = append(names, b.Addr.String())
			}
		}
		return names
	})
}

// ofVIPs gathers names from all VIPs of this network namespace.
func ofVIPs(names func(lb.VIP) []string) []string {
	return collect(datapath.ListHere, func(i *datapath.Instance) (all []string) {
		vips, _ := vipsOf(i) // what cannot be read is not completed
		for _, v := range vips {
			all = append(all, names(v)...)
		}
		return all
	})
}

// vipsOf returns the VIPs of a data plane, none if it has no load balancer.
func vipsOf(inst *datapath.Instance) ([]lb.VIP, error) {
	if lbplane.OptionsOf(inst) == nil {
		return nil, nil
	}
	p, err := lbplane.View(inst)
	if err != nil {
		return nil, err
	}
	s, err := lb.Load(p)
	return s.VIPs, err
}
