// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
)

// twins returns the processes that have the name of a node which is there, by that name: the node's own state is of another process.
func (f *Fleet) twins(ctx context.Context, states States) (map[string]cluster.Twin, error) {
	twins := make(map[string]cluster.Twin)
	err := f.callAgain(ctx, "reading which names are taken", func(ctx context.Context) error {
		// Answers may be long, and few of the keys are of twins.
		r, err := f.etcd.Get(ctx, f.keys.Answers(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		for _, kv := range r.Kvs {
			node := f.keys.TwinOf(string(kv.Key))
			state, there := states[node]
			if node == "" || !there {
				continue
			}
			r, err := f.etcd.Get(ctx, string(kv.Key))
			if err != nil {
				return err
			}
			var t cluster.Twin
			if len(r.Kvs) == 1 && decode(r.Kvs[0].Value, &t) == nil && t.Instance != state.Instance {
				twins[node] = t
			}
		}
		return nil
	})
	return twins, err
}
