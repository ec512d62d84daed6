// SPDX-License-Identifier: Apache-2.0

package health

import "time"

// State is whether a target answers.
type State uint8

// States. Unknown is what nobody has asked yet, or what has failed fewer than Fall times since: it counts as up, for
// otherwise a restart would take everything out of service.
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

// Result is what is known of a target.
type Result struct {
	State State
	// Since is when the state began.
	Since            time.Time
	Checks, Failures uint64
	// Asked is when the last check began, the zero time if an earlier process has made it: one that has failed says nothing
	// about a time after that.
	Asked time.Time
	// Rising is what is Down and has answered its last checks, but not yet Rise of them.
	Rising bool
	// Text says what failed last, empty if nothing has.
	Text string
}

// judge is the state of a target and how far it is from another one.
type judge struct {
	result Result
	run    int // of answers that contradict the state, in a row
}

// take takes in what a check has found that began then, nil for an answer, and tells whether the state has changed.
func (j *judge) take(c Check, failure error, began, now time.Time) (changed bool) {
	j.result.Checks++
	j.result.Asked = began
	next, need := Up, c.Rise
	if failure != nil {
		j.result.Failures++
		j.result.Text = failure.Error()
		next, need = Down, c.Fall
	} else if j.result.State == Unknown {
		need = 1 // it is in service already
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

// pause is the time from one check to the next. What is not down is asked Fall times in an interval, so that its
// failure is found in one.
func (j *judge) pause(c Check) time.Duration {
	if j.result.State == Down {
		return c.Interval
	}
	return c.Interval / time.Duration(c.Fall)
}
