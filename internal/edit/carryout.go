// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"culvert/internal/datapath"
	"culvert/internal/stage"
	"culvert/internal/stages"
)

// carryOut brings an edit into force on a running data plane. It returns an error and changes nothing if the edit contradicts
// what another stage does there.
func carryOut(inst *datapath.Instance, e stage.Edit) error {
	// Edit holds the data plane's lock, so that no other process turns a stage on between the check and the change.
	return inst.Edit(func(locked *datapath.Instance) error { return apply(locked, e) })
}

// apply carries an edit out while the data plane's lock is held. All stages check the edit, as they are on the data plane.
func apply(inst *datapath.Instance, e stage.Edit) error {
	return e.Apply(inst, func(edited stage.Checker) error {
		s := stage.Situation{Interfaces: interfacesOf(inst), Running: inst}
		for _, st := range stages.All() {
			if st.Name() == e.Name() {
				s.Stages = append(s.Stages, edited)
				continue
			}
			editable, ok := st.(stage.Editable)
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
