// SPDX-License-Identifier: Apache-2.0

package stage

import "culvert/internal/datapath"

// Checker is what is asked of a stage, by a file or by hand.
type Checker interface {
	// Name is that of the stage.
	Name() string
	// Check returns an error if what is asked contradicts the host, the running data plane or what is asked of other stages.
	// It touches nothing of these.
	Check(Situation) error
}

// Edit is a change of one stage by hand. Like the plan of a file it is worked out first, then checked together with the other
// stages, and then brought into force as a whole or not at all.
type Edit interface {
	// Name is that of the stage.
	Name() string
	// Apply works out what the change makes of the stage on inst, calls check with the result, and brings it into force. After
	// an error, also of check, nothing has changed. No other edit of the stage comes in between.
	Apply(inst *datapath.Instance, check func(Checker) error) error
}

// Editable is a Stage that is part of a data plane without a file, and that edits of other stages are checked against.
type Editable interface {
	// Now returns what is asked of the stage on a running data plane, nil if the stage is off there.
	Now(inst *datapath.Instance) (Checker, error)
}
