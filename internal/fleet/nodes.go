// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
)

// States are the states of the nodes that are there, by name.
type States map[string]cluster.State

// Names returns the names, sorted.
func (s States) Names() []string { return slices.Sorted(maps.Keys(s)) }

// In returns the names of the nodes that a scope means, sorted.
func (s States) In(scope cluster.Scope) (names []string) {
	for _, name := range s.Names() {
		if scope.Holds(name, s[name].Roles) {
			names = append(names, name)
		}
	}
	return names
}

// Nodes follows the states of nodes.
type Nodes struct {
	fleet   *Fleet
	mu      sync.Mutex
	states  States
	changed chan struct{}
	err     error
}

// States returns the states of all nodes that are there.
func (f *Fleet) States(ctx context.Context) (States, error) {
	states, _, err := f.states(ctx)
	return states, err
}

// states also returns the revision of etcd that the states are of.
func (f *Fleet) states(ctx context.Context) (States, int64, error) {
	states, at := make(States), int64(0)
	err := f.callAgain(ctx, "reading the states of nodes", func(ctx context.Context) error {
		r, err := f.etcd.Get(ctx, f.keys.Nodes(), clientv3.WithPrefix())
		if err != nil {
			return err
		}
		at = r.Header.Revision
		for _, kv := range r.Kvs {
			f.take(states, kv)
		}
		return nil
	})
	return states, at, err
}

// take adds a state. A node is called by its key: a state under another one's key, or one that is no record, is of no node.
func (f *Fleet) take(states States, kv *mvccpb.KeyValue) {
	name := string(kv.Key[len(f.keys.Nodes()):])
	var s cluster.State
	if decode(kv.Value, &s) != nil || s.Node != name {
		s = cluster.State{Node: name, Health: cluster.HealthBad, Problems: []string{"its state in etcd is no record of culvert's"}}
	}
	states[name] = s
}

// Follow reads the states of all nodes and follows them until ctx ends.
func (f *Fleet) Follow(ctx context.Context) (*Nodes, error) {
	n := &Nodes{fleet: f, changed: make(chan struct{}, 1)}
	states, at, err := f.states(ctx)
	if err != nil {
		return nil, err
	}
	n.states = states
	go n.follow(ctx, at+1)
	return n, nil
}

// Now returns the states. An error says that they may be old, since etcd cannot be reached.
func (n *Nodes) Now() (States, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.states), n.err
}

// Changed receives a value when states have changed.
func (n *Nodes) Changed() <-chan struct{} { return n.changed }

func (n *Nodes) set(change func(), err error) {
	n.mu.Lock()
	if change != nil {
		change()
	}
	n.err = err
	n.mu.Unlock()
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// again is how long to wait before the states are read whole once more.
const again = time.Second

func (n *Nodes) follow(ctx context.Context, from int64) {
	for {
		err := n.watch(ctx, from)
		if ctx.Err() != nil {
			return
		}
		n.set(nil, err)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(again):
			}
			// What was missed is in a whole read at one revision.
			states, at, err := n.fleet.states(ctx)
			if err == nil {
				n.set(func() { n.states = states }, nil)
				from = at + 1
				break
			}
			n.set(nil, err)
		}
	}
}

func (n *Nodes) watch(ctx context.Context, from int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for r := range n.fleet.etcd.Watch(ctx, n.fleet.keys.Nodes(), clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := r.Err(); err != nil {
			return plain(err)
		}
		n.set(func() {
			for _, e := range r.Events {
				if e.Type == clientv3.EventTypeDelete {
					delete(n.states, string(e.Kv.Key[len(n.fleet.keys.Nodes()):]))
				} else {
					n.fleet.take(n.states, e.Kv)
				}
			}
		}, nil)
	}
	return errors.New("the watch of the nodes' states has ended")
}
