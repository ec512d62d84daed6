// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"culvert/internal/cluster"
)

// away returns the nodes that earlier rollouts have met and that are not there.
func (f *Fleet) away(ctx context.Context, states States) []string {
	var known cluster.Known
	if _, err := f.get(ctx, f.keys.Known(), &known); err != nil {
		return nil // nothing depends on it: known nodes are for people
	}
	for name := range states {
		delete(known, name)
	}
	return slices.Sorted(maps.Keys(known))
}

// meet notes the nodes that are there.
func (f *Fleet) meet(ctx context.Context, states States) {
	known := make(cluster.Known)
	if _, err := f.get(ctx, f.keys.Known(), &known); err != nil {
		return
	}
	now := time.Now().UTC()
	for name := range states {
		known[name] = now
	}
	_ = f.put(ctx, f.keys.Known(), known)
}

// Forget takes a node off the list of those that are missed while they are away.
func (f *Fleet) Forget(ctx context.Context, node string) error {
	known := make(cluster.Known)
	if _, err := f.get(ctx, f.keys.Known(), &known); err != nil {
		return err
	}
	if _, ok := known[node]; !ok {
		return fmt.Errorf("no rollout has met a node %s: see 'culvert fleet status'", node)
	}
	delete(known, node)
	return f.put(ctx, f.keys.Known(), known)
}
