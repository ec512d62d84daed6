// SPDX-License-Identifier: Apache-2.0

package health

import "time"

// State says whether a target passes its checks.
type State uint8

// States. A target is Unknown until its first probe passes or Fall probes in a row fail. Unknown counts as up, because
// otherwise a restart would take all backends out of service.
const (
	Unknown State = iota
	Up
	Down
)

func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Down:
		return "down"
	}
	return "unknown"
}

// Result is the result of the probes of a target.
type Result struct {
	State State
	// Since is the time of the last change of the state.
	Since time.Time
	// Checks is the number of probes, Failures that of failed ones.
	Checks, Failures uint64
	// Asked is the time at which the last probe began, zero if that was in an earlier process. A failure says nothing about
	// the time after that.
	Asked time.Time
	// Rising is set if the target is Down and has passed its last probes, but fewer than Rise.
	Rising bool
	// Text is the last failure, "" if there was none.
	Text string
}

// judge has the result of a target and the number of probes in a row that contradict its state.
type judge struct {
	result Result
	run    int
}

// add adds the outcome of a probe that began at that time: nil or its failure. It returns whether the state has changed.
func (j *judge) add(c Check, failure error, began, now time.Time) (changed bool) {
	j.result.Checks++
	j.result.Asked = began
	next, need := Up, c.Rise
	if failure != nil {
		j.result.Failures++
		j.result.Text = failure.Error()
		next, need = Down, c.Fall
	} else if j.result.State == Unknown {
		need = 1 // it counts as up already
	}
	j.result.Rising = false
	if next == j.result.State {
		j.run = 0
		return false
	}
	if j.run++; j.run < need {
		j.result.Rising = next == Up
		return false
	}
	j.result.State, j.result.Since, j.run = next, now, 0
	return true
}

// pause returns the time from one probe to the next. A target that is not down is probed Fall times in an interval, so that
// a failure is found within one.
func (j *judge) pause(c Check) time.Duration {
	if j.result.State == Down {
		return c.Interval
	}
	return c.Interval / time.Duration(c.Fall)
}
