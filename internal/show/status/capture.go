// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"

	"culvert/internal/capture/captureplane"
	"culvert/internal/datapath"
)

// Capture is a 'culvert capture' on a data plane.
type Capture struct {
	// PID is its process, left out if that is not visible from here or has ended.
	PID int `json:"pid,omitempty"`
	// Expression selects the packets, "" for all.
	Expression string `json:"expression"`
	// LeftOver tells that the process has ended, and left its programs behind.
	LeftOver bool `json:"left_over,omitempty"`
}

func (r *Router) describeCapture(inst *datapath.Instance) error {
	c, err := captureplane.View(inst)
	if err == nil && c != nil {
		r.Capture = &Capture{PID: c.PID, Expression: c.Expression, LeftOver: c.LeftOver}
	}
	return err
}

// line describes the capture. served tells whether a process serves the data plane.
func (c *Capture) line(served bool) string {
	of := cmp.Or(c.Expression, "all packets")
	switch {
	case c.LeftOver && served:
		return "  capture  LEFT OVER by a process that was killed: the process that serves is about to end it: " + of
	case c.LeftOver:
		return "  capture  LEFT OVER by a process that was killed: end it with 'culvert capture -n 1': " + of
	case c.PID == 0:
		return "  capture  by another process: " + of
	}
	return fmt.Sprintf("  capture  by process %d: %s", c.PID, of)
}
