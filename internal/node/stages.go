// SPDX-License-Identifier: Apache-2.0

package node

import (
	"log/slog"
	"sync"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/runstate"
)

// stageStates publishes the states of the stages for commands and metrics while the process lives.
type stageStates struct {
	inst   *datapath.Instance
	writer *runstate.Writer
	log    *slog.Logger
	done   chan struct{}
	ended  sync.WaitGroup

	mu       sync.Mutex
	states   []datapath.StageState
	detached string
	plane    uint64 // ID of the data plane for which they were last written
	failed   bool
}

// statesPeriod is how often it is checked whether the data plane was detached and attached again. That gives it another ID.
const statesPeriod = 500 * time.Millisecond

// newStages publishes all stages of u as starting.
func newStages(u *up, log *slog.Logger) *stageStates {
	s := &stageStates{inst: u.inst, log: log, done: make(chan struct{}), detached: u.file.Node.Detached}
	for _, p := range u.prepared {
		s.states = append(s.states, datapath.StageState{Stage: p.Name(), State: datapath.StageStarting})
	}
	if s.inst == nil {
		return s
	}
	if err := runstate.Sweep(); err != nil {
		log.Warn("what other processes have left stays", "err", err)
	}
	s.writer = runstate.NewWriter(datapath.StagesKind, s.inst.NetNS(), s.inst.Name())
	s.write(true)
	s.ended.Go(func() {
		tick := time.NewTicker(statesPeriod)
		defer tick.Stop()
		for {
			select {
			case <-s.done:
				return
			case <-tick.C:
				s.write(false)
			}
		}
	})
	return s
}

// set publishes the state of a stage. why is the error of a stage that is out, nil otherwise.
func (s *stageStates) set(name, state string, why error) {
	s.mu.Lock()
	for n := range s.states {
		if s.states[n].Stage == name {
			s.states[n].State, s.states[n].Why = state, ""
			if why != nil {
				s.states[n].Why = why.Error()
			}
		}
	}
	s.mu.Unlock()
	s.write(true)
}

// write writes the states if they have changed or the data plane has another ID.
func (s *stageStates) write(changed bool) {
	if s.writer == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.inst.ID()
	if id == 0 || !changed && id == s.plane {
		return
	}
	err := s.writer.Write(id, datapath.ProcessState{Stages: s.states, Detached: s.detached})
	if err != nil && !s.failed {
		s.log.Warn("'culvert status' cannot tell of the stages", "err", err)
	}
	if s.failed = err != nil; !s.failed {
		s.plane = id
	}
}

func (s *stageStates) close() {
	close(s.done)
	s.ended.Wait()
	if s.writer != nil {
		s.writer.Close()
	}
}
