// SPDX-License-Identifier: Apache-2.0

package captureplane

import (
	"culvert/internal/datapath"
	"culvert/internal/host/trust"
)

// Running is a capture on a data plane.
type Running struct {
	// Expression selects its packets, "" for all.
	Expression string
	// PID is the process that captures, 0 if it is not visible from here.
	PID int
	// LeftOver tells that the process has ended, and left its programs behind.
	LeftOver bool
}

// View returns the capture on a data plane, nil if there is none.
func View(inst *datapath.Instance) (*Running, error) {
	f, done, err := inst.Front(Name)
	if err != nil {
		return nil, err
	}
	defer done()
	s, err := stateOf(f)
	if err != nil || s == nil {
		return nil, err
	}
	r := &Running{Expression: s.Expression, LeftOver: !owned(inst)}
	if !r.LeftOver {
		r.PID = trust.LockHolder(lockPath(inst))
	}
	return r, nil
}
