// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/etcd"
)

// away returns the nodes that earlier rollouts have met and that are not there, and whether that is not known since the key is damaged.
func (f *Fleet) away(ctx context.Context, states States) (names []string, damaged bool) {
	var known cluster.Known
	if _, err := f.get(ctx, f.keys.Known(), &known); err != nil {
		return nil, isDamaged(err) // nothing depends on it: known nodes are for people
	}
	for name := range states {
		delete(known, name)
	}
	return slices.Sorted(maps.Keys(known)), false
}

// meet notes the nodes that are there, in a key that is written anew if it is damaged. An error is none of the rollout that has met them.
func (f *Fleet) meet(ctx context.Context, states States) {
	now := time.Now().UTC()
	_ = f.changeKnown(ctx, etcd.Renew, func(known cluster.Known) (bool, error) {
		for name := range states {
			known[name] = now
		}
		return len(states) > 0, nil
	})
}

// Forget takes a node off the list of those that are missed while they are away. One that is there is not missed.
func (f *Fleet) Forget(ctx context.Context, node string) error {
	states, err := f.States(ctx)
	if err != nil {
		return err
	}
	if _, there := states[node]; there {
		return fmt.Errorf("node %s is there, and so nobody misses it: end it first, or its certificate with 'culvert cluster revoke %s'", node, node)
	}
	err = f.forget(ctx, node)
	if err == nil {
		f.audit(ctx, "forget", node, nil)
	}
	return err
}

func (f *Fleet) forget(ctx context.Context, node string) error {
	err := f.changeKnown(ctx, etcd.Change, func(known cluster.Known) (bool, error) {
		if _, ok := known[node]; !ok {
			return false, fmt.Errorf("no rollout has met a node %s: see 'culvert fleet status'", node)
		}
		delete(known, node)
		return true, nil
	})
	var damaged *etcd.RecordError
	if errors.As(err, &damaged) {
		return errors.New(damagedKnown)
	}
	return err
}

// changeKnown changes the list of nodes that are missed, which a rollout and 'culvert cluster revoke' may change at the same time.
func (f *Fleet) changeKnown(ctx context.Context, by func(context.Context, *clientv3.Client, string, func(*cluster.Known) (bool, error)) error,
	change func(cluster.Known) (bool, error),
) error {
	var refused error
	err := f.call(ctx, "writing "+f.keys.Known(), func(ctx context.Context) error {
		return by(ctx, f.etcd, f.keys.Known(), func(known *cluster.Known) (changed bool, _ error) {
			if *known == nil {
				*known = make(cluster.Known)
			}
			changed, refused = change(*known)
			return changed && refused == nil, nil
		})
	})
	return cmp.Or(refused, err)
}
