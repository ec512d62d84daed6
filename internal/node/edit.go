// SPDX-License-Identifier: Apache-2.0

package node

import (
	"culvert/internal/datapath"
	"culvert/internal/stage"
	"culvert/internal/stages"
)

// carryOut brings a change by hand into force on a running data plane, unless it contradicts what another stage does there.
func carryOut(inst *datapath.Instance, e stage.Edit) error {
	// With the lock held, no other process turns a stage on between the check and the change.
	return inst.Edit(func(now *datapath.Instance) error { return apply(now, e) })
}

func apply(inst *datapath.Instance, e stage.Edit) error {
	return e.Apply(inst, func(edited stage.Checker) error {
		s := stage.Situation{Interfaces: union(inst), Running: inst}
		for _, of := range stages.All() {
			if of.Name() == e.Name() {
				s.Stages = append(s.Stages, edited)
				continue
			}
			editable, ok := of.(stage.Editable)
			if !ok {
				continue
			}
			now, err := editable.Now(inst)
			if err != nil {
				return err
			}
			if now != nil {
				s.Stages = append(s.Stages, now)
			}
		}
		for _, c := range s.Stages {
			if err := c.Check(s); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkers are plans as what is asked of their stages.
func checkers(plans []stage.Plan) (all []stage.Checker) {
	for _, p := range plans {
		all = append(all, p)
	}
	return all
}
