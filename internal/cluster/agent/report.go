// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/etcd"
)

const (
	// leaseTTL is how long a state stays without its node, in seconds.
	leaseTTL = 15
	// silence is after how long without an answer to a sign of life etcd counts as lost.
	silence = 10 * time.Second
	// twinPeriod is how often a node tries to get the name that another one has.
	twinPeriod = time.Second
	// least is the time between two writes of a state, whatever has changed.
	least = 100 * time.Millisecond
)

// report writes the node's state under a lease until something fails that ends the session: nil if only ctx has ended.
func (a *Agent) report(ctx context.Context, client *clientv3.Client) error {
	lease, err := a.grant(ctx, client)
	if err != nil || ctx.Err() != nil {
		return err
	}
	// The state outlives the session: a node that only reconnects does not look dead meanwhile.
	alive, err := client.KeepAlive(ctx, lease)
	if err != nil {
		return err
	}
	w := &stateWriter{agent: a, client: client, lease: lease}
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	// Nodes that come at once do not write at once ever after.
	period := time.NewTicker(rand.N(cluster.StatePeriod) + least)
	defer period.Stop()
	var retry <-chan time.Time
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case r, ok := <-alive:
			if !ok || r == nil {
				return errors.New("etcd has ended the lease of the node's state")
			}
			quiet.Reset(silence)
			continue
		case <-quiet.C:
			return fmt.Errorf("no sign of life from etcd in %v", silence)
		case <-period.C:
			period.Reset(cluster.StatePeriod)
			err = w.write(ctx, false)
		case <-a.reports:
			sleep(ctx, least) // changes come together
			err = w.write(ctx, true)
		case <-retry:
			err = w.write(ctx, true)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := a.written(err); err != nil {
			return err
		}
		retry = nil
		if err != nil {
			retry = time.After(twinPeriod)
		}
	}
}

// grant returns a lease for the state. What keeps etcd from writing does not keep the node from following it: grant goes on trying.
func (a *Agent) grant(ctx context.Context, client *clientv3.Client) (clientv3.LeaseID, error) {
	for {
		granting, cancel := context.WithTimeout(ctx, etcd.CallTime)
		lease, err := client.Grant(granting, leaseTTL)
		cancel()
		if err == nil || ctx.Err() != nil {
			return leaseID(lease), nil
		}
		if err := a.written(err); err != nil {
			return 0, err
		}
		sleep(ctx, cluster.StatePeriod)
	}
}

func leaseID(r *clientv3.LeaseGrantResponse) clientv3.LeaseID {
	if r == nil {
		return clientv3.NoLease
	}
	return r.ID
}

// written notes the outcome of a write. It returns an error that ends the session.
func (a *Agent) written(err error) error {
	var twin *twinError
	text, host := "", ""
	switch {
	case err == nil:
		a.tellSecond()
	case errors.As(err, &twin):
		host = twin.host
	case denies(err):
		a.denied()
		if a.renewed() {
			return errRenewed
		}
		return nil
	case refusing(err):
		text = etcd.Reason(err)
	default:
		return err
	}
	a.mu.Lock()
	changed := a.is.twin != host || a.is.reportProblem != text
	alone, back := a.is.twin != "" && host == "", !a.is.denied.IsZero() && err == nil
	a.mu.Unlock()
	if !changed {
		return nil
	}
	switch {
	case host != "":
		a.Log.Error("another node has this node's name: this one follows no revisions until the other ends, or one of them gets another name",
			"node", a.Node, "host", host)
	case text != "":
		a.Log.Error("the node's state cannot be written", "err", text)
	case back:
		a.Log.Info("etcd takes this node's certificate again", "cluster", a.Cluster, "node", a.Node)
	}
	a.update(func(i *is) {
		i.twin, i.reportProblem, i.denied = host, text, time.Time{}
		if host != "" {
			i.second = ""
		}
	})
	if alone {
		a.revisions.wake()
	}
	return nil
}

// refusing tells whether etcd answers, and refuses to write.
func refusing(err error) bool {
	e := etcdError(err)
	return errors.Is(e, rpctypes.ErrNoSpace) || errors.Is(e, rpctypes.ErrTooManyRequests)
}

// stateWriter writes the states of a session.
type stateWriter struct {
	agent  *Agent
	client *clientv3.Client
	lease  clientv3.LeaseID
	mod    int64 // the revision of etcd of the last write, 0 before
	weight string
	last   string
	failed bool // whether the last write was refused
	shown  bool // whether this session has written the key twin
}

// write writes the state if it has changed: at once, if something of weight has, and otherwise once in a period.
func (w *stateWriter) write(ctx context.Context, changed bool) error {
	s := w.agent.state()
	text, err := bounded(&s)
	if err != nil {
		return err
	}
	weight := weightOf(s)
	same := string(text) == w.last || changed && weight == w.weight && w.mod != 0
	if same && !w.failed {
		if changed {
			return nil
		}
		if stands, err := w.stands(ctx); stands || err != nil {
			w.failed = err != nil
			return err
		}
	}
	if err := w.put(ctx, text); err != nil {
		w.failed = true // nothing but a write tells that the next one is not refused
		return err
	}
	w.last, w.weight, w.failed = string(text), weight, false
	w.agent.mu.Lock()
	w.agent.is.writes++
	w.agent.mu.Unlock()
	return nil
}

// put writes the state unless another process has the name. The key of a process that has ended is taken over, and so is this
// process's own of an earlier session.
func (w *stateWriter) put(ctx context.Context, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTime)
	defer cancel()
	key := w.agent.keys.Node(w.agent.Node)
	const attempts = 3 // the key may come and go meanwhile
	for range attempts {
		r, err := w.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", w.mod)).
			Then(clientv3.OpPut(key, string(text), clientv3.WithLease(w.lease))).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return err
		}
		if r.Succeeded {
			w.mod = r.Header.Revision
			w.hideTwin(ctx)
			return nil
		}
		kvs := r.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 {
			w.mod = 0
			continue
		}
		if other := w.agent.otherIn(kvs); other != nil {
			w.showTwin(ctx, other.Instance)
			return &twinError{other.Host}
		}
		w.mod = kvs[0].ModRevision
	}
	return errors.New("the key of the node's state changes all the time")
}
