// SPDX-License-Identifier: Apache-2.0

package doctor

import "cmp"

// LeftCapture is a capture whose process has ended and left its programs on a data plane.
type LeftCapture struct {
	// Router is the name of the data plane.
	Router string
	// Expression selected the packets, "" for all.
	Expression string
}

// checkCaptures warns of captures that nobody reads: they only cost.
func checkCaptures(left []LeftCapture) (found []Finding) {
	for _, c := range left {
		found = append(found, Finding{
			Status: Warn, Check: "capture", Command: "culvert capture --on " + c.Router + " -n 1",
			Finding: "the process that captured on " + c.Router + " (" + cmp.Or(c.Expression, "all packets") +
				") was killed, and packets still take the instructions of a capture: the next capture ends it, and so does a process that serves, after some seconds",
		})
	}
	return found
}
