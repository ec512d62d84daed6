// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"culvert/internal/datapath"
	"culvert/internal/lb"
	"culvert/internal/stage"
)

// Edit is a change of VIPs and backends by hand.
type Edit struct {
	// Change changes the state of the load balancer. The changed state is written once it has been checked.
	Change func(*lb.State) error
}

// Name implements stage.Edit.
func (Edit) Name() string { return Stage{}.Name() }

// Apply implements stage.Edit.
func (e Edit) Apply(inst *datapath.Instance, check func(stage.Checker) error) error {
	return lb.Edit(inst, func(s *lb.State) error {
		if err := e.Change(s); err != nil {
			return err
		}
		return check(edited{s.VIPs})
	})
}

// Now implements stage.Editable.
func (Stage) Now(inst *datapath.Instance) (stage.Checker, error) {
	s, _, err := running(inst)
	if err != nil || len(s.VIPs) == 0 {
		return nil, err
	}
	return edited{s.VIPs}, nil
}

// edited has all VIPs of a data plane, those of the file and those made by hand.
type edited struct{ vips []lb.VIP }

// Name implements stage.Checker.
func (edited) Name() string { return Stage{}.Name() }

// Check implements stage.Checker.
func (e edited) Check(s stage.Situation) error { return checkProtected(s, e.vips) }
