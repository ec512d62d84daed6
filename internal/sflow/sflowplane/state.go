// SPDX-License-Identifier: Apache-2.0

package sflowplane

import (
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/runstate"
)

// StateKind is the kind of Process in runstate.
const StateKind = "sflow"

// Process is what the process that sends the samples tells commands.
type Process struct {
	// Collector is where the samples go, as the configuration has it, and Agent the address that they are sent in the name of.
	Collector string `json:"collector"`
	Agent     string `json:"agent,omitempty"`
	// Error says why the collector gets nothing, "" if nothing is known against it. Since is when that began.
	Error string     `json:"error,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	// Unread tells that it gets nothing because the process cannot read the samples.
	Unread bool `json:"unread,omitempty"`
}

// ProcessOf returns what the process that serves a data plane tells, nil if there is none, or if it cannot be read here.
func ProcessOf(inst *datapath.Instance) (*Process, error) {
	id := inst.ID()
	if id == 0 || !inst.Served() {
		return nil, nil
	}
	p := new(Process)
	known, err := runstate.Read(StateKind, inst.NetNS(), inst.Name(), id, p)
	if err != nil || !known {
		return nil, err
	}
	return p, nil
}
