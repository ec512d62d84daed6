// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"log/slog"
	"strings"

	"culvert/internal/balance"
	"culvert/internal/config"
	"culvert/internal/datapath"
)

// begin brings into force what a file says, on a data plane that was attached for it: all of it, or nothing. The filter
// comes last, as its change cannot be undone.
func begin(inst *datapath.Instance, w *wantedFilter, balanced *wantedBalance) error {
	before, kept := balanceOf(inst)
	if err := balanced.apply(inst); err != nil {
		return err
	}
	err := w.apply(inst)
	if err != nil && kept && inst.Adopted() {
		err = errors.Join(err, balance.Edit(inst, func(s *balance.State) error { *s = before; return nil }))
	}
	return err
}

func balanceOf(inst *datapath.Instance) (s balance.State, ok bool) {
	plane, err := inst.ViewBalance()
	if err == nil {
		s, err = balance.Load(plane)
	}
	return s, err == nil
}

// orKept is w, or without a [balance] table what keeps the VIPs made by hand on the data plane of a name, which may run
// here already; nil if there are none.
func (w *wantedBalance) orKept(name string) (*wantedBalance, error) {
	if w != nil {
		return w, nil
	}
	running, err := runningBalance(name)
	if err != nil {
		return nil, err
	}
	merged, err := balance.Merge(running.State, balance.State{})
	if err != nil {
		return nil, err
	}
	if len(merged.VIPs) == 0 {
		tellGone(balance.Gone(running.State, merged))
		return nil, nil
	}
	return &wantedBalance{options: running.options}, nil // its ring size and seed stay too
}

func tellGone(gone []string) {
	if len(gone) > 0 {
		logger().Info("the configuration file names these no more: they are taken out of the load balancer", "gone", strings.Join(gone, ", "))
	}
}

// newFollower keeps a data plane on its interfaces as the configuration says.
func newFollower(n *config.Node, wanted *wantedFilter, inst *datapath.Instance, log *slog.Logger) *follower {
	f := &follower{inst: inst, log: log, detached: n.Detached, restore: func() error { return wanted.apply(inst) }}
	if n.Route != nil {
		f.check = func(name string) error { return checkTags([]string{name}) }
	}
	return f
}

// present leaves out the interfaces that do not exist, if they are waited for.
func present(names []string, wait bool) (here []string) {
	for _, name := range names {
		if !wait || !datapath.NoInterface(name) {
			here = append(here, name)
		}
	}
	return here
}
