// SPDX-License-Identifier: Apache-2.0

package datapath

import "culvert/internal/host/runstate"

// StageState is how a stage of the process that serves an instance is.
type StageState struct {
	// Stage is the name of its table in the configuration file.
	Stage string `json:"stage"`
	// State is StageStarting, StageReady or StageOut, Why the error of one that is out.
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
}

const (
	// StageStarting: it has not read all that it follows.
	StageStarting = "starting"
	// StageReady: it is in step with the host, or needs no process.
	StageReady = "ready"
	// StageOut: nobody keeps it in step any more, though the process lives.
	StageOut = "out"
)

// StagesKind is what runstate has a ProcessState as.
const StagesKind = "stages"

// ProcessState is what the process that serves an instance tells of itself.
type ProcessState struct {
	Stages []StageState `json:"stages"`
	// Detached is what it does when somebody else detaches the instance, in the words of the configuration file.
	Detached string `json:"detached"`
}

// Process returns what the process that serves the instance tells of itself, nothing if there is none; known is false where
// it has told nothing that can be seen here.
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

// Stages is the part of Process about the stages.
func (i *Instance) Stages() (states []StageState, known bool, err error) {
	p, known, err := i.Process()
	return p.Stages, known, err
}

// StagesOut implements stats.StageSource.
func (i *Instance) StagesOut() (map[string]bool, error) {
	states, _, err := i.Stages()
	out := make(map[string]bool)
	for _, s := range states {
		out[s.Stage] = s.State == StageOut
	}
	return out, err
}
