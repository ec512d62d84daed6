// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"io"
	"net/netip"

	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/lbstage"
	"culvert/internal/lb/lbview"
)

// Balancer is a load balancer to be changed.
type Balancer struct {
	// On names the data plane, "" for the only one here that balances load.
	On  string
	Out io.Writer
}

// edit has the load balancer changed, and tells what has become of what.
func (b Balancer) edit(ctx context.Context, what string, change func(*lb.State) (file bool, err error)) error {
	inst, err := lbview.Open(b.On)
	if err != nil {
		return err
	}
	defer inst.Close()
	var file bool
	err = lb.Edit(inst, func(s *lb.State) (err error) {
		if file, err = change(s); err != nil {
			return err
		}
		f, err := filterplane.Read(inst)
		if err != nil {
			return err
		}
		return lbstage.RefuseProtected(f.Protected(), s.VIPs)
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(b.Out, what)
	if file {
		fmt.Fprintln(b.Out, "the configuration file says otherwise: what it says comes back when it is read again")
	}
	if inst.Served() {
		return nil // the process finds the ways to new backends
	}
	return lbstage.Settle(ctx, inst, b.Out)
}

// AddVIP makes a VIP without backends.
func (b Balancer) AddVIP(ctx context.Context, k lb.Service, s lb.VIPSpec) error {
	return b.edit(ctx, fmt.Sprintf("VIP %s added", k), func(state *lb.State) (bool, error) { return false, state.AddVIP(k, s) })
}

// SetVIP changes a VIP.
func (b Balancer) SetVIP(ctx context.Context, k lb.Service, s lb.VIPSpec) error {
	return b.edit(ctx, fmt.Sprintf("VIP %s changed", k), func(state *lb.State) (bool, error) { return state.SetVIP(k, s) })
}

// DeleteVIP deletes a VIP with its backends.
func (b Balancer) DeleteVIP(ctx context.Context, k lb.Service) error {
	return b.edit(ctx, fmt.Sprintf("VIP %s deleted", k), func(state *lb.State) (bool, error) { return state.DeleteVIP(k) })
}

// AddBackend gives a VIP another backend.
func (b Balancer) AddBackend(ctx context.Context, k lb.Service, a netip.Addr, s lb.BackendSpec) error {
	return b.edit(ctx, fmt.Sprintf("VIP %s: backend %s added", k, a), func(state *lb.State) (bool, error) {
		return false, state.AddBackend(k, a, s)
	})
}

// SetBackend changes a backend.
func (b Balancer) SetBackend(ctx context.Context, k lb.Service, a netip.Addr, s lb.BackendSpec) error {
	return b.edit(ctx, fmt.Sprintf("VIP %s: backend %s changed", k, a), func(state *lb.State) (bool, error) {
		return state.SetBackend(k, a, s)
	})
}

// DeleteBackend takes a backend from a VIP.
func (b Balancer) DeleteBackend(ctx context.Context, k lb.Service, a netip.Addr) error {
	return b.edit(ctx, fmt.Sprintf("VIP %s: backend %s deleted", k, a), func(state *lb.State) (bool, error) {
		return state.DeleteBackend(k, a)
	})
}

// Drain drains a backend, or with an invalid address the VIP; or takes that back.
func (b Balancer) Drain(ctx context.Context, k lb.Service, a netip.Addr, drained bool) error {
	what := fmt.Sprintf("VIP %s", k)
	if a.IsValid() {
		what += fmt.Sprintf(": backend %s", a)
	}
	said := map[bool]string{true: " is drained", false: " is not drained any more"}[drained]
	return b.edit(ctx, what+said, func(state *lb.State) (bool, error) { return false, state.Drain(k, a, drained) })
}

// Balancers lists the data planes of this network namespace that balance load, for a shell to complete.
func Balancers() []string {
	return collect(datapath.ListHere, func(i *datapath.Instance) []string {
		if lbplane.OptionsOf(i) == nil {
			return nil
		}
		return []string{i.Name()}
	})
}

// BalanceVIPs lists their VIPs.
func BalanceVIPs() []string {
	return ofBalance(func(v lb.VIP) []string { return []string{v.Service.String()} })
}

// BalanceBackends lists the backends of a VIP.
func BalanceBackends(vip string) []string {
	return ofBalance(func(v lb.VIP) (names []string) {
		if v.Service.String() == vip {
			for _, b := range v.Backends {
				names = append(names, b.Addr.String())
			}
		}
		return names
	})
}

func ofBalance(names func(lb.VIP) []string) []string {
	return collect(datapath.ListHere, func(i *datapath.Instance) (all []string) {
		p, err := lbplane.View(i)
		if err != nil {
			return nil
		}
		s, err := lb.Load(p)
		if err != nil {
			return nil
		}
		for _, v := range s.VIPs {
			all = append(all, names(v)...)
		}
		return all
	})
}
