// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"culvert/internal/cluster"
)

// BackError says that a rollout has gone back, and why.
type BackError struct {
	To, Back int64
	Why      string
}

// Error returns the error in one line.
func (e *BackError) Error() string {
	return fmt.Sprintf("revision %d goes back to %d: %s", e.To, e.Back, e.Why)
}

// looks is how often a step is looked at while no state changes.
const looks = 200 * time.Millisecond

// roll brings the rollout of c on, from the step that it is at, to its end. A step that is not well in time takes it back: a BackError. If ctx
// ends or the lock is lost, the rollout stays where it is.
func (l *lock) roll(ctx context.Context, c cluster.Current, say Teller) error {
	f := l.fleet
	nodes, err := f.Follow(ctx)
	if err != nil {
		return err
	}
	r := c.Rollout
	states, _ := nodes.Now()
	var ill []string
	for _, name := range slices.Concat(r.Plan...) {
		if s, ok := states[name]; ok && s.Health != cluster.HealthGood && s.Revision != r.To {
			ill = append(ill, name)
		}
	}
	if len(ill) > 0 {
		say.Line("in bad health before, asked for the revision alone: %s", some(ill))
	}
	for {
		if r.Step > 0 {
			if err := l.step(ctx, c, ill, nodes, say); err != nil {
				return err
			}
		}
		if r.Step == len(r.Plan) {
			break
		}
		r.Nodes, r.Step = append(slices.Clip(r.Nodes), r.Plan[r.Step]...), r.Step+1
		if err := l.writeCurrent(ctx, c); err != nil {
			return l.stopped(ctx, r, err)
		}
	}
	if err := l.writeCurrent(ctx, cluster.Current{Revision: r.To}); err != nil {
		return l.stopped(ctx, r, err)
	}
	l.settle(ctx, r, nodes, say)
	return nil
}

// stopped adds to an error that ends this process's part of a rollout what there is to do.
func (l *lock) stopped(ctx context.Context, r *cluster.Rollout, err error) error {
	if errors.Is(err, errLost) {
		return err
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return fmt.Errorf("%w: the rollout of revision %d stays at step %d of %d; 'culvert fleet apply --resume' goes on, "+
		"'culvert fleet rollback' goes back", err, r.To, r.Step, len(r.Plan))
}

// step waits for the end of a step.
func (l *lock) step(ctx context.Context, c cluster.Current, ill []string, nodes *Nodes, say Teller) error {
	r := c.Rollout
	s := newStep(r, ill, time.Now())
	head := fmt.Sprintf("step %d of %d (%s)", r.Step, len(r.Plan), some(s.fresh))
	tick := time.NewTicker(looks)
	defer tick.Stop()
	for {
		states, unseen := nodes.Now()
		if unseen != nil {
			// What nodes report cannot be seen, which says nothing about them. Time goes on once it can.
			say.Live("%s: waiting for etcd: %v", head, unseen)
			s = newStep(r, ill, time.Now())
		} else {
			p, done, why := s.look(states, time.Now())
			switch {
			case why != "":
				say.Line("%s: %d of %d nodes run revision %d in good health", head, p.running, p.of, r.To)
				return l.back(ctx, c, why, nodes, say)
			case done:
				say.Line("%s: %d of %d nodes run revision %d in good health", head, p.running, p.of, r.To)
				return nil
			case p.running == p.of:
				say.Live("%s: %d of %d nodes run revision %d, well for %s of %s", head, p.running, p.of, r.To, (s.wait - p.left).Round(time.Second), s.wait)
			default:
				say.Live("%s: %d of %d nodes run revision %d in good health", head, p.running, p.of, r.To)
			}
		}
		select {
		case <-ctx.Done():
			return l.stopped(ctx, r, ctx.Err())
		case <-l.lost():
			return errLost
		case <-nodes.Changed():
		case <-tick.C:
		}
	}
}

// back takes a rollout back and waits for a moment until nodes run the revision before.
func (l *lock) back(ctx context.Context, c cluster.Current, why string, nodes *Nodes, say Teller) error {
	r := c.Rollout
	if err := l.writeCurrent(context.WithoutCancel(ctx), cluster.Current{Revision: c.Revision}); err != nil {
		return fmt.Errorf("revision %d is not well (%s), and going back failed: %w", r.To, why, err)
	}
	behind := wait(ctx, nodes, r.Within, r.Nodes, c.Revision, say)
	if len(behind) == 0 {
		say.Line("back on revision %d: %s", c.Revision, some(r.Nodes))
	} else {
		say.Line("do not run revision %d again yet: %s", c.Revision, some(behind))
	}
	return &BackError{To: r.To, Back: c.Revision, Why: why}
}

// settle waits for the nodes that were in no step, whose configuration the revision does not change, and lists those that do not run it.
func (l *lock) settle(ctx context.Context, r *cluster.Rollout, nodes *Nodes, say Teller) {
	states, _ := nodes.Now()
	if behind := wait(ctx, nodes, r.Within, states.Names(), r.To, say); len(behind) > 0 {
		say.Line("do not run revision %d yet: %s ('culvert fleet status' says why)", r.To, some(behind))
	}
}

// wait waits until nodes run a revision, and returns those that do not within the time. Nodes that are away do not count.
func wait(ctx context.Context, nodes *Nodes, within time.Duration, names []string, revision int64, say Teller) (behind []string) {
	end := time.After(within)
	for {
		states, _ := nodes.Now()
		behind = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			s, there := states[name]
			return !there || s.Revision == revision
		})
		if len(behind) == 0 {
			return nil
		}
		say.Live("%d of %d nodes run revision %d", len(names)-len(behind), len(names), revision)
		select {
		case <-ctx.Done():
			return behind
		case <-end:
			return behind
		case <-nodes.Changed():
		}
	}
}

// Teller tells an operator how a command goes on.
type Teller struct {
	Out io.Writer
	// Terminal redraws the last line.
	Terminal bool
}

// Line writes a line that stays.
func (t Teller) Line(format string, args ...any) {
	t.clear()
	fmt.Fprintf(t.Out, format+"\n", args...)
}

// Live shows a line until the next one, on a terminal alone.
func (t Teller) Live(format string, args ...any) {
	if t.Terminal {
		t.clear()
		fmt.Fprintf(t.Out, format, args...)
	}
}

func (t Teller) clear() {
	if t.Terminal {
		fmt.Fprint(t.Out, "\r\x1b[K")
	}
}
