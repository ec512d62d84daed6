// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"culvert/internal/cluster"
)

// failedAgain is how often urgent changes are tried again that could not be carried out.
const failedAgain = 5 * time.Second

// urgentLoop brings urgent changes into force, and ends them.
func (a *Agent) urgentLoop(ctx context.Context) {
	before := a.Held // also those that have ended while no process ran
	first := true
	for {
		changes, next := a.dueUrgents()
		a.keepOver()
		if !slices.EqualFunc(changes, before, sameHeld) || first && len(changes) > 0 || a.urgentFailed() {
			a.carryOut(ctx, changes)
			before = changes
		}
		if a.urgentFailed() {
			next = min(next, failedAgain)
		}
		first = false
		wait := time.NewTimer(next)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-a.urgents:
		case <-wait.C:
		}
		wait.Stop()
	}
}

// sameHeld tells whether an urgent change is still the same.
func sameHeld(a, b Held) bool {
	return a.ID == b.ID && a.Words == b.Words && string(a.Request) == string(b.Request) && a.Until == b.Until
}

// dueUrgents returns the urgent changes that are to be in force, in the order of their IDs, and when to look again. A change for a time ends by
// the node's clock, if its key does not end before.
func (a *Agent) dueUrgents() (due []Held, next time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	const idle = time.Hour
	next = idle
	now := Clock()
	for _, h := range a.want.urgents {
		if a.overNow(h, now) {
			continue
		}
		if h.Until > 0 {
			next = min(next, h.Until-now)
		}
		due = append(due, h)
	}
	if a.overUnkept {
		next = min(next, failedAgain)
	}
	slices.SortFunc(due, func(x, y Held) int { return cluster.CompareIDs(x.ID, y.ID) })
	return due, next
}

func (a *Agent) urgentFailed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.is.failed)+len(a.is.unconcerned) > 0
}

func (a *Agent) carryOut(ctx context.Context, changes []Held) {
	failed := a.Plane.Urgent(ctx, changes)
	if ctx.Err() != nil {
		return
	}
	texts := make(map[string]string)
	for id, err := range failed {
		if !errors.Is(err, ErrUnconcerned) {
			texts[id] = oneLine(err)
		}
	}
	var inForce, unconcerned []string
	for _, h := range changes {
		switch err := failed[h.ID]; {
		case err == nil:
			inForce = append(inForce, h.ID)
		case errors.Is(err, ErrUnconcerned):
			unconcerned = append(unconcerned, h.ID)
		}
	}
	var before map[string]string
	a.update(func(i *is) { before, i.inForce, i.failed, i.unconcerned = i.failed, inForce, texts, unconcerned })
	for _, id := range slices.Sorted(maps.Keys(texts)) {
		if texts[id] != before[id] {
			a.Log.Error("an urgent change is not in force: it is tried again", "id", id, "err", texts[id])
		}
	}
}
