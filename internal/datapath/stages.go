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

// StagesKind is what runstate has the states as.
const StagesKind = "stages"

// Stages returns how the stages are by the word of the process that serves the instance, none if there is none; known is
// false where that process has told nothing that can be seen here.
func (i *Instance) Stages() (states []StageState, known bool, err error) {
	id := i.ID()
	if id == 0 || !i.Served() {
		return nil, true, nil
	}
	known, err = runstate.Read(StagesKind, i.NetNS(), i.Name(), id, &states)
	if err != nil || !known {
		return nil, false, err
	}
	return states, true, nil
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
