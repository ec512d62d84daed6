// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster/etcd"
)

// denies tells whether etcd answers that this node's certificate may not do something.
func denies(err error) bool { return errors.Is(etcdError(err), rpctypes.ErrPermissionDenied) }

// etcdError returns what etcd has answered, in an error of a call or of a watch.
func etcdError(err error) rpctypes.EtcdError {
	var e rpctypes.EtcdError
	if !errors.As(err, &e) {
		e, _ = rpctypes.Error(err).(rpctypes.EtcdError)
	}
	return e
}

// denied notes that etcd refuses the node's certificate, and logs it once until etcd takes a write again. It returns why that may be.
func (a *Agent) denied() string {
	a.mu.Lock()
	worked, told := a.is.writes > 0, !a.is.denied.IsZero()
	why := a.is.reportProblem
	a.mu.Unlock()
	if told {
		return why
	}
	why = fmt.Sprintf("its certificate was revoked, is another node's, or the cluster is not called %s: compare 'culvert cluster list'; "+
		"'culvert cluster enrol %s --again' makes another one, which this node takes up once its files are here", a.Cluster, a.Node)
	if worked {
		why = fmt.Sprintf("its certificate was revoked: 'culvert cluster enrol %s --again' makes another one, which this node takes up once its files are here", a.Node)
	}
	a.update(func(i *is) { i.denied, i.reportProblem = time.Now(), why })
	a.Log.Error("etcd refuses this node: what runs goes on, and nobody sees its state", "cluster", a.Cluster, "node", a.Node, "why", why)
	return why
}

// stands tells whether the key of the state is as this process has written it. So a node whose state does not change learns that etcd refuses it
// from now on, and writes again what somebody has deleted.
func (w *stateWriter) stands(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTime)
	defer cancel()
	r, err := w.client.Get(ctx, w.agent.keys.Node(w.agent.Node), clientv3.WithKeysOnly(), clientv3.WithSerializable())
	if err != nil {
		return false, err
	}
	return len(r.Kvs) == 1 && r.Kvs[0].ModRevision == w.mod, nil
}
