// SPDX-License-Identifier: Apache-2.0

package node

import (
	"culvert/internal/datapath"
	"culvert/internal/lb"
)

// running is what a data plane does that runs here already, as far as a file may change it.
type running struct {
	filter  datapath.Filter
	balance lb.State
	options datapath.BalanceOptions // of the load balancer
}

// runningHere reads the data plane of a name in this network namespace; there need not be one. One that cannot be read is an
// error: to attach would take what was made by hand out of it, unseen.
func runningHere(name string) (now running, err error) {
	inst, err := datapath.OpenHere(name)
	if inst == nil || err != nil {
		return now, err
	}
	defer inst.Close()
	if now.filter, err = inst.Filter(); err != nil || inst.Balance() == nil {
		return now, err
	}
	plane, err := inst.ViewBalance()
	if err != nil {
		return now, err
	}
	now.options = plane.Options()
	now.balance, err = lb.Load(plane)
	return now, err
}

// complete tells, before anything is touched, whether what a file says goes together with what was made by hand on the data
// plane of the options' name, which may run here already, and completes the options for it. It returns what is to be
// balanced, nil for nothing.
func complete(o *datapath.Options, w *wantedFilter, balanced *wantedBalance) (*wantedBalance, error) {
	now, err := runningHere(o.Name)
	if err != nil {
		return nil, err
	}
	if err := w.fits(now); err != nil {
		return nil, err
	}
	balanced, gone, err := balanced.orKept(now)
	if err != nil {
		return nil, err
	}
	if err := checkProtectedVIPs(now, w, balanced); err != nil {
		return nil, err
	}
	if o.Balance, err = balanced.plan(now); err != nil {
		return nil, err
	}
	o.Begin = func(inst *datapath.Instance) error { return begin(inst, w, balanced, gone) }
	return balanced, nil
}

// orKept is w, or without a [balance] table what keeps the VIPs made by hand; nil if there are none. It names what goes with
// the load balancer then.
func (w *wantedBalance) orKept(now running) (_ *wantedBalance, gone []string, err error) {
	if w != nil {
		return w, nil, nil
	}
	merged, err := lb.Merge(now.balance, lb.State{})
	if err != nil {
		return nil, nil, err
	}
	if len(merged.VIPs) == 0 {
		return nil, lb.Gone(now.balance, merged), nil
	}
	// What they are balanced with stays too: ring size, seed, and where packets say that they come from.
	return &wantedBalance{
		options: now.options, state: lb.State{Source4: now.balance.Source4, Source6: now.balance.Source6},
	}, nil, nil
}
