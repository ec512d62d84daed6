// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"culvert/internal/config"
	"culvert/internal/config/inforce"
	"culvert/internal/datapath"
	"culvert/internal/events"
	"culvert/internal/host/runstate"
	"culvert/internal/stage"
)

// stageStates publishes the states of the stages for commands and metrics while the process lives.
type stageStates struct {
	name   string
	inst   *datapath.Instance
	writer *runstate.Writer
	config *runstate.Writer
	log    *slog.Logger
	done   chan struct{}
	ended  sync.WaitGroup

	mu       sync.Mutex
	states   []datapath.StageState
	on       map[string]bool          // whether a stage is on, as opposed to one that only removes what an earlier file had
	limited  map[string]stage.Limited // stages whose tables may be too small
	ready    map[string]bool          // stages that have come up, and neither went out since nor were switched off
	detached string
	inForce  inforce.State
	plane    uint64 // ID of the data plane for which they were last written
	failed   bool
}

// startedAt is when this process began.
var startedAt = time.Now()

// statesPeriod is how often it is checked whether the data plane was detached and attached again. That gives it another ID.
const statesPeriod = 500 * time.Millisecond

// newStages publishes all stages of u as starting.
func newStages(u *up, log *slog.Logger) *stageStates {
	s := &stageStates{
		name: u.name, inst: u.inst, log: log, done: make(chan struct{}), ready: make(map[string]bool), detached: u.file.Node.Detached, inForce: u.inForce(),
	}
	for _, p := range u.prepared {
		s.states = append(s.states, datapath.StageState{Stage: p.Name(), State: datapath.StageStarting})
	}
	s.follow(u)
	if s.inst == nil {
		return s
	}
	if err := runstate.Sweep(); err != nil {
		log.Warn("what other processes have left stays", "err", err)
	}
	s.writer = runstate.NewWriter(datapath.StagesKind, s.inst.NetNS(), s.inst.Name())
	s.config = inforce.NewWriter(s.inst.NetNS(), s.inst.Name())
	s.write(true)
	s.ended.Go(func() {
		tick := time.NewTicker(statesPeriod)
		defer tick.Stop()
		for {
			select {
			case <-s.done:
				return
			case <-tick.C:
				s.write(s.short())
			}
		}
	})
	return s
}

// follow notes which stages of u are on, and which have tables that may be too small.
func (s *stageStates) follow(u *up) {
	s.on, s.limited = make(map[string]bool), make(map[string]stage.Limited)
	for _, p := range u.prepared {
		s.on[p.Name()] = u.isOn(p)
		if limited, ok := p.(stage.Limited); ok {
			s.limited[p.Name()] = limited
		}
	}
}

// isOn tells whether a stage is on: because of the file, or of what was made by hand.
func (u *up) isOn(p stage.Prepared) bool {
	on, ok := p.(interface{ On() bool })
	return !ok || on.On() || u.file.Node.Tables[p.Name()] != nil
}

// short asks the stages which tables are too small, and tells whether that has changed.
func (s *stageStates) short() (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.states {
		state := &s.states[n]
		text := ""
		if limited := s.limited[state.Stage]; limited != nil && state.State == datapath.StageReady {
			text = limited.Short()
		}
		if text != state.Short && text != "" {
			s.log.Log(context.Background(), events.Level, "a table of a stage is too small", "stage", state.Stage, "what", text)
		}
		changed = changed || text != state.Short
		state.Short = text
	}
	return changed
}

// set publishes the state of a stage. why is the error of a stage that is out, nil otherwise.
func (s *stageStates) set(name, state string, why error) {
	s.mu.Lock()
	if state == datapath.StageReady && s.on[name] && !s.ready[name] { // a reload serves stages anew that were ready
		s.log.Log(context.Background(), events.Level, "a stage is ready", "stage", name)
	}
	s.ready[name] = state == datapath.StageReady && s.on[name]
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
	id := s.inst.ID() // of any generation
	if id == 0 || !changed && !s.failed && id == s.plane {
		return
	}
	err := errors.Join(s.writer.Write(id, datapath.ProcessState{Stages: s.states, Detached: s.detached}), s.config.Write(id, s.inForce))
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
		s.config.Close()
	}
}

// succeed publishes the stages of another configuration. Those of servers in goOn keep their states, the others are starting.
func (s *stageStates) succeed(u *up, goOn []*server) {
	s.mu.Lock()
	was := s.states
	s.inst, s.detached, s.states = u.inst, u.file.Node.Detached, nil
	for _, p := range u.prepared {
		state := datapath.StageState{Stage: p.Name(), State: datapath.StageStarting}
		for _, old := range was {
			if old.Stage == p.Name() && slices.ContainsFunc(goOn, func(s *server) bool { return s.Name() == old.Stage }) {
				state = old
			}
		}
		s.states = append(s.states, state)
	}
	s.follow(u)
	for name := range s.ready {
		s.ready[name] = s.ready[name] && s.on[name]
	}
	s.mu.Unlock()
	s.write(true)
}

// reloaded publishes the outcome of a reload. u is what is in force after it.
func (s *stageStates) reloaded(u *up, err error) {
	r := inforce.Reload{At: time.Now(), OK: err == nil, NotKept: errors.Is(err, errNotKept)}
	if err != nil {
		r.Error = config.All(err)[0].Error()
	}
	s.mu.Lock()
	was := s.inForce
	s.inForce = u.inForce()
	s.inForce.Reload, s.inForce.Until, s.inForce.Web, s.inForce.Cluster = &r, was.Until, was.Web, was.Cluster
	s.mu.Unlock()
	s.write(true)
}

// cluster publishes how the node stands with its cluster.
func (s *stageStates) cluster(c *inforce.Cluster) {
	s.mu.Lock()
	changed := !reflect.DeepEqual(s.inForce.Cluster, c)
	s.inForce.Cluster = c
	s.mu.Unlock()
	if changed {
		s.write(true)
	}
}

// configured returns the states of the stages that have something to do: because of the file, or of what was made by hand before it was read.
func (s *stageStates) configured() (on []datapath.StageState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range s.states {
		if s.on[state.Stage] {
			on = append(on, state)
		}
	}
	return on
}

// until publishes when the configuration goes back, nil if it stays.
func (s *stageStates) until(at *time.Time) {
	s.mu.Lock()
	s.inForce.Until = at
	s.mu.Unlock()
	s.write(true)
}

// web publishes the state of the page to look at, nil if there is none.
func (s *stageStates) web(w *inforce.Web) {
	s.mu.Lock()
	s.inForce.Web = w
	s.mu.Unlock()
	s.write(true)
}

// inForce returns the state of the configuration, which was just read.
func (u *up) inForce() inforce.State {
	return inforce.State{File: absolute(u.file.Path), DropIns: len(u.file.Node.Files) > 0, ReadAt: u.readAt, StartedAt: startedAt, Read: u.stamps}
}

// absolute returns a path that commands in other directories can use.
func absolute(path string) string {
	if a, err := filepath.Abs(path); err == nil {
		return a
	}
	return path
}
