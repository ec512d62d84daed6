// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"culvert/internal/host/runstate"
	"culvert/internal/stats"
)

// StageState is the state of one stage of the process that serves an instance.
type StageState struct {
	// Stage is the name of its table in the configuration file.
	Stage string `json:"stage"`
	// State is StageStarting, StageReady or StageOut. Why is the error that led to StageOut.
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
	// Short says which table has no room for what should be in it, and which key of the file gives it more, "" if there is room.
	Short string `json:"short,omitempty"`
}

// States of a stage.
const (
	StageStarting = stats.StageStarting
	StageReady    = stats.StageReady
	StageOut      = stats.StageOut
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

// StageStates implements stats.StageSource.
func (i *Instance) StageStates() (map[string]string, error) {
	states, _, err := i.Stages()
	all := make(map[string]string)
	for _, s := range states {
		all[s.Stage] = s.State
	}
	return all, err
}
