// SPDX-License-Identifier: Apache-2.0

package datapath

import "culvert/internal/host/runstate"

// StageState is the state of one stage of the process that serves an instance.
type StageState struct {
	// Stage is the name of its table in the configuration file.
	Stage string `json:"stage"`
	// State is StageStarting, StageReady or StageOut. Why is the error that led to StageOut.
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
}

const (
	// StageStarting says that the stage has not read all of the host's state that it follows.
	StageStarting = "starting"
	// StageReady says that the stage is in step with the host, or needs no process.
	StageReady = "ready"
	// StageOut says that the stage has failed and follows the host no longer, though the process runs.
	StageOut = "out"
)

// StagesKind is the kind under which runstate stores a ProcessState.
const StagesKind = "stages"

// ProcessState is what the process that serves an instance publishes about itself.
type ProcessState struct {
	Stages []StageState `json:"stages"`
	// Detached is what the process does when another one detaches the instance: a value of the configuration file.
	Detached string `json:"detached"`
}

// Process returns the state of the process that serves the instance. Without such a process it is the zero value. Known is
// false if there is a process whose state cannot be read here.
func (i *Instance) Process() (state ProcessState, known bool, err error) {
	id := i.ID()
	if id == 0 || !i.Served() {
		return state, true, nil
	}
	known, err = runstate.Read(StagesKind, i.NetNS(), i.Name(), id, &state)
	if err != nil || !known {
		return ProcessState{}, false, err
	}
	return state, true, nil
}

// Stages returns the stages of Process.
func (i *Instance) Stages() (states []StageState, known bool, err error) {
	p, known, err := i.Process()
	return p.Stages, known, err
}

// StagesOut implements stats.StageSource: it tells of each stage whether it is in StageOut.
func (i *Instance) StagesOut() (map[string]bool, error) {
	states, _, err := i.Stages()
	out := make(map[string]bool)
	for _, s := range states {
		out[s.Stage] = s.State == StageOut
	}
	return out, err
}
