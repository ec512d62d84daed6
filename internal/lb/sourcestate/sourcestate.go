// SPDX-License-Identifier: Apache-2.0

// Package sourcestate has the state of the sources of backends that the process which asks them passes to commands.
package sourcestate

import (
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/runstate"
)

// Kind is the kind of this state in runstate.
const Kind = "sources"

// Source is the state of a source of backends of a VIP.
type Source struct {
	VIP  string `json:"vip"`
	Name string `json:"source"`
	// Kind is file, dns or etcd.
	Kind string `json:"kind"`
	// State is Waiting, OK, Failing, Held or Refused, and Since is when the source entered it.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	// Why says in one line why the state is neither OK nor Waiting.
	Why string `json:"why,omitempty"`
	// Backends are those in force that the source names, and Leaving those that it names no more and that keep their flows for a while.
	Backends int `json:"backends"`
	Leaving  int `json:"leaving"`
	// Answered is when the last answer came.
	Answered *time.Time `json:"answered,omitempty"`
	// Answers and Failures count the answers and what came in place of them, and Changes how often backends have changed because of them.
	Answers  uint64 `json:"answers"`
	Failures uint64 `json:"failures"`
	Changes  uint64 `json:"changes"`
}

// States of a source.
const (
	// Waiting is the state before the first answer.
	Waiting = "waiting"
	OK      = "ok"
	// Failing is the state of a source that cannot be asked, or whose answer is no list of backends.
	Failing = "failing"
	// Held is the state of one whose answer would take too many backends away.
	Held = "held"
	// Refused is the state of one whose backends the load balancer cannot have.
	Refused = "refused"
)

// Troubled returns whether the last answer is not in force.
func (s Source) Troubled() bool { return s.State == Failing || s.State == Held || s.State == Refused }

// Of returns the sources of the process that serves a data plane, none if no process does. known is false until the process has written
// them, or if they cannot be seen from here.
func Of(inst *datapath.Instance) (sources []Source, known bool, err error) {
	id := inst.ID()
	if id == 0 || !inst.Served() {
		return nil, true, nil
	}
	known, err = runstate.Read(Kind, inst.NetNS(), inst.Name(), id, &sources)
	if err != nil || !known {
		return nil, false, err
	}
	return sources, true, nil
}
