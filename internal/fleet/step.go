// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"culvert/internal/cluster"
)

// step looks at the nodes that a rollout has reached, and says whether it may go on. Times are of the monotonic clock.
type step struct {
	to           int64
	wait, within time.Duration
	// nodes are those of all steps so far, fresh those of the last one, which have time until they run the revision.
	nodes, fresh []string
	// ill were in bad health before the rollout: they are asked for the revision alone.
	ill []string

	began time.Time
	// good is since when a node runs the revision in good health, bad since when it does not although it could.
	good, bad map[string]time.Time
}

// progress is where a step is.
type progress struct {
	// Running counts the nodes of the step that run the revision in good health.
	running, of int
	// Left is how long all of them still have to be well.
	left time.Duration
}

func newStep(r *cluster.Rollout, ill []string, now time.Time) *step {
	return &step{
		to: r.To, wait: r.Wait, within: r.Within, nodes: r.Nodes, fresh: r.Plan[r.Step-1], ill: ill,
		began: now, good: make(map[string]time.Time), bad: make(map[string]time.Time),
	}
}

// look judges states. done tells whether the step is done, and why is not empty if the rollout has to go back.
func (s *step) look(states States, now time.Time) (p progress, done bool, why string) {
	p.of, p.left = len(s.nodes), s.wait
	var reasons []string
	for _, name := range s.nodes {
		state, there := states[name]
		fault := s.fault(name, state, there)
		if fault == "" {
			delete(s.bad, name)
			if s.good[name].IsZero() {
				s.good[name] = now
			}
			p.running++
			continue
		}
		delete(s.good, name)
		if s.bad[name].IsZero() {
			s.bad[name] = now
		}
		if s.over(name, state, there, now) {
			reasons = append(reasons, name+": "+fault)
		}
	}
	if len(reasons) > 0 {
		const most = 3
		if len(reasons) > most {
			reasons = append(reasons[:most], fmt.Sprintf("and %d others", len(reasons)-most))
		}
		return p, false, strings.Join(reasons, "; ")
	}
	if p.running < p.of {
		return p, false, ""
	}
	last := s.began
	for _, since := range s.good {
		if since.After(last) {
			last = since
		}
	}
	p.left = max(s.wait-now.Sub(last), 0)
	return p, p.left == 0, ""
}

// fault says what is wrong with a node, "" if it runs the revision in good health.
func (s *step) fault(name string, state cluster.State, there bool) string {
	switch {
	case !there:
		return "it is not there any more"
	case refuses(state, s.to):
		return "refused: " + state.Refused
	case state.Revision != s.to:
		return fmt.Sprintf("runs revision %d after %s", state.Revision, s.within)
	case state.Health != cluster.HealthGood && !slices.Contains(s.ill, name):
		return "in bad health: " + problems(state)
	}
	return ""
}

func refuses(state cluster.State, revision int64) bool {
	return state.Refused != "" && state.Wanted == revision && (state.Revision != revision || revision != 0)
}

func problems(state cluster.State) string {
	if len(state.Problems) == 0 {
		return "it does not say why"
	}
	return strings.Join(state.Problems, ", ")
}

// over tells whether a node has had the time that it may take for a fault to pass: none if it refuses the revision, within for running it,
// and wait for its health, and for coming back.
func (s *step) over(name string, state cluster.State, there bool, now time.Time) bool {
	switch {
	case there && refuses(state, s.to):
		return true
	case there && state.Revision != s.to && slices.Contains(s.fresh, name):
		return now.Sub(s.began) >= s.within
	}
	return now.Sub(s.bad[name]) >= max(s.wait, leastPatience)
}

// leastPatience is how long a node may be in bad health or away at least: a process that starts again takes over its state within that time.
const leastPatience = 2 * time.Second
