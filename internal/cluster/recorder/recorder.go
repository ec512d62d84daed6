// SPDX-License-Identifier: Apache-2.0

// Package recorder has a data plane that only writes down what it is asked for, for nodes that are simulated.
package recorder

import (
	"context"
	"fmt"
	"sync"
	"time"

	"culvert/internal/cluster"
	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/lastgood"
)

// Recorder is an agent.Plane without a data plane.
type Recorder struct {
	// Check says why documents are refused. It may be nil.
	Check func(*lastgood.Set) error
	// Changed is called after each change. It may be nil.
	Changed func()

	mu       sync.Mutex
	ran      []Ran
	refused  int
	urgent   map[string]time.Time
	maintain bool
	health   []string
}

// Ran is a set of documents that was brought into force.
type Ran struct {
	Revision int64
	Digest   string
	At       time.Time
}

// Run implements agent.Plane.
func (r *Recorder) Run(_ context.Context, set *lastgood.Set) error {
	if r.Check != nil {
		if err := r.Check(set); err != nil {
			r.mu.Lock()
			r.refused++
			r.mu.Unlock()
			return err
		}
	}
	r.mu.Lock()
	r.ran = append(r.ran, Ran{set.Revision, set.Digest(), time.Now()})
	r.mu.Unlock()
	r.changed()
	return nil
}

// Urgent implements agent.Plane.
func (r *Recorder) Urgent(_ context.Context, changes []agent.Held) map[string]error {
	now := time.Now()
	failed := make(map[string]error)
	in := make(map[string]time.Time)
	r.mu.Lock()
	for _, h := range changes {
		if h.Words == "" {
			failed[h.ID] = fmt.Errorf("urgent change %s has no words", h.ID)
			continue
		}
		at, ok := r.urgent[h.ID]
		if !ok {
			at = now
		}
		in[h.ID] = at
	}
	r.urgent = in
	r.mu.Unlock()
	r.changed()
	return failed
}

// Maintain implements agent.Plane.
func (r *Recorder) Maintain(_ context.Context, on bool) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.maintain
	r.maintain = on
	switch {
	case !on:
		return "", nil
	case !was:
		return cluster.MaintainWithdrawing, nil
	}
	return cluster.MaintainSafe, nil
}

// State implements agent.Plane.
func (r *Recorder) State(s *cluster.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.health) > 0 {
		s.Health, s.Problems = cluster.HealthBad, append(s.Problems, r.health...)
	}
}

// Answer implements agent.Plane.
func (*Recorder) Answer(_ context.Context, q cluster.Ask) cluster.Answer {
	return cluster.Answer{Lines: []string{"recorded: " + q.Where}}
}

// SetProblems has the node report bad health from its next state on, or good health without problems.
func (r *Recorder) SetProblems(problems ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.health = problems
}

// Runs returns what was brought into force so far, the last one at the end, and how many sets were refused.
func (r *Recorder) Runs() (ran []Ran, refused int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Ran{}, r.ran...), r.refused
}

// Revision returns the one in force, 0 for the node's own file.
func (r *Recorder) Revision() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ran) == 0 {
		return 0
	}
	return r.ran[len(r.ran)-1].Revision
}

// Since returns since when an urgent change is in force, the zero time if it is not.
func (r *Recorder) Since(id string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.urgent[id]
}

// Maintained tells whether the node's addresses are withdrawn.
func (r *Recorder) Maintained() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.maintain
}

func (r *Recorder) changed() {
	if r.Changed != nil {
		r.Changed()
	}
}
