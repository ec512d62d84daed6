// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/etcd"
)

// twinError says that another process has the node's name.
type twinError struct{ host string }

func (e *twinError) Error() string { return "another node has this name, on host " + e.host }

// showTwin has operators see that this process has a name that another one has: the key of the state is that one's. It is written once in a
// session, under the lease of the state. With false it goes again.
func (w *stateWriter) showTwin(ctx context.Context, is bool) {
	if w.shown == is {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTime)
	defer cancel()
	a := w.agent
	key := a.keys.Twin(a.Node)
	var err error
	if is {
		var text []byte
		if text, err = json.Marshal(cluster.Twin{Host: a.Host, Instance: a.Instance}); err == nil {
			_, err = w.client.Put(ctx, key, string(text), clientv3.WithLease(w.lease))
		}
	} else {
		_, err = w.client.Delete(ctx, key)
	}
	if err == nil { // otherwise the next try to write the state tries again
		w.shown = is
	}
}
