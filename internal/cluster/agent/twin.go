// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/etcd"
)

// twinError says that another process has the node's name.
type twinError struct{ host string }

func (e *twinError) Error() string { return "another node has this name, on host " + e.host }

// twinIn returns the process that a node's key twin tells of, one without an instance if there is no such key.
func twinIn(kvs []*mvccpb.KeyValue) (t cluster.Twin) {
	if len(kvs) == 0 || json.Unmarshal(kvs[0].Value, &t) != nil {
		return cluster.Twin{}
	}
	return t
}

// otherIn returns the state of another process that has this node's name, nil if the node's key tells of none that may still be there.
func (a *Agent) otherIn(kvs []*mvccpb.KeyValue) *cluster.State {
	other := new(cluster.State)
	if len(kvs) == 0 || json.Unmarshal(kvs[0].Value, other) != nil || other.Instance == a.Instance {
		return nil
	}
	if a.Dead != nil && a.Dead(other.Host, other.Instance) {
		return nil
	}
	if other.Host == "" {
		other.Host = "unknown"
	}
	return other
}

// showTwin has others see that this process has a name that another one has, holder: the key of the state is that one's. One process that says so
// is enough. The key is under the lease of the state.
func (w *stateWriter) showTwin(ctx context.Context, holder string) {
	a := w.agent
	switch told := a.toldSecond(); {
	case told.Instance == "" || told.Instance == holder:
	case told.Instance == a.Instance && !w.shown: // the lease of an earlier session is about to end
	default:
		return
	}
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTime)
	defer cancel()
	if text, err := json.Marshal(cluster.Twin{Host: a.Host, Instance: a.Instance}); err == nil {
		_, err = w.client.Put(ctx, a.keys.Twin(a.Node), string(text), clientv3.WithLease(w.lease))
		w.shown = err == nil // otherwise the next try to write the state tries again
	}
}

// hideTwin takes away what this process has told before it got the name.
func (w *stateWriter) hideTwin(ctx context.Context) {
	if w.agent.toldSecond().Instance != w.agent.Instance {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTime)
	defer cancel()
	_, _ = w.client.Delete(ctx, w.agent.keys.Twin(w.agent.Node)) // otherwise its lease ends it: nobody takes it for another process
}

// setSecond takes the node's key twin.
func (w *want) setSecond(kvs []*mvccpb.KeyValue) { w.second = twinIn(kvs) }

func (a *Agent) sawSecond(e *clientv3.Event) {
	a.mu.Lock()
	a.want.second = cluster.Twin{}
	if e.Type == mvccpb.PUT {
		a.want.setSecond([]*mvccpb.KeyValue{e.Kv})
	}
	a.mu.Unlock()
	a.reports.wake()
}

// toldSecond returns the process of which the key twin tells.
func (a *Agent) toldSecond() cluster.Twin {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.want.second
}

// tellSecond notes and logs that another process has this node's name, too, and when that is over. It is called after the state was written: this
// process has the name.
func (a *Agent) tellSecond() {
	second := a.toldSecond()
	a.mu.Lock()
	was := a.is.second
	a.mu.Unlock()
	host := ""
	if second.Instance != "" && second.Instance != a.Instance {
		if host = second.Host; host == "" {
			host = "unknown"
		}
	}
	if host == was {
		return
	}
	if host == "" {
		a.Log.Info("no other node has this node's name any more", "node", a.Node)
	} else {
		a.Log.Error("another node has this node's name, too: that one follows no revisions until this one ends, or one of them gets another name",
			"node", a.Node, "host", host)
	}
	a.update(func(i *is) { i.second = host })
}
