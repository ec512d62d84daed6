// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"culvert/internal/cluster"
)

// lockTTL is how long the lock stays after the operator's machine died, in seconds.
const lockTTL = 10

// lock is the lock of rollouts. It is held as long as its lease lives. Writes that need the lock compare its key, and so nothing is
// written by a holder that does not know yet that it has lost it.
type lock struct {
	fleet   *Fleet
	session *concurrency.Session
	made    int64 // revision of the key's creation
}

// LockedError says that somebody else holds the lock.
type LockedError struct{ Holder cluster.Holder }

// Error returns the error in one line.
func (e *LockedError) Error() string {
	return fmt.Sprintf("%s holds the lock since %s, for '%s': wait until that is done; if its machine died, the lock ends %d s later by itself",
		e.Holder.By, e.Holder.At.Local().Format("15:04:05"), e.Holder.Does, lockTTL)
}

// lock takes the lock for a command, or returns a LockedError.
func (f *Fleet) lock(ctx context.Context, does string) (*lock, error) {
	l := &lock{fleet: f}
	// The session's lease is to live while the operator's context ends: what was begun is written to its end.
	var grant *clientv3.LeaseGrantResponse
	err := f.call(ctx, "taking the lock", func(ctx context.Context) (err error) {
		grant, err = f.etcd.Grant(ctx, lockTTL)
		return err
	})
	if err != nil {
		return nil, err
	}
	if l.session, err = concurrency.NewSession(f.etcd, concurrency.WithLease(grant.ID)); err != nil {
		return nil, fmt.Errorf("taking the lock: %w", plain(err))
	}
	holder, err := json.Marshal(cluster.Holder{By: f.by, At: time.Now().UTC(), Does: does})
	if err != nil {
		return nil, err
	}
	var r *clientv3.TxnResponse
	err = f.call(ctx, "taking the lock", func(ctx context.Context) (err error) {
		key := f.keys.Lock()
		r, err = f.etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, string(holder), clientv3.WithLease(l.session.Lease()))).
			Else(clientv3.OpGet(key)).Commit()
		return err
	})
	if err == nil && !r.Succeeded {
		locked := new(LockedError)
		if kvs := r.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			_ = decode(kvs[0].Value, &locked.Holder)
		}
		err = locked
	}
	if err != nil {
		_ = l.session.Close()
		return nil, err
	}
	l.made = r.Header.Revision
	return l, nil
}

// Close gives the lock back.
func (l *lock) Close() { _ = l.session.Close() }

// lost is closed when the lease has ended.
func (l *lock) lost() <-chan struct{} { return l.session.Done() }

// errLost says that somebody else may have the lock by now.
var errLost = errors.New("the lock was lost, since etcd could not be reached in time: nothing more was written; " +
	"'culvert fleet apply --resume' goes on, 'culvert fleet rollback' goes back")

// write writes keys as long as the lock is held, all of them or none.
func (l *lock) write(ctx context.Context, what string, ops ...clientv3.Op) error {
	return l.fleet.call(ctx, what, func(ctx context.Context) error {
		r, err := l.fleet.etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(l.fleet.keys.Lock()), "=", l.made)).Then(ops...).Commit()
		if err == nil && !r.Succeeded {
			return errLost
		}
		return err
	})
}

// writeCurrent writes what nodes are to run.
func (l *lock) writeCurrent(ctx context.Context, c cluster.Current) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return l.write(ctx, "writing what nodes are to run", clientv3.OpPut(l.fleet.keys.Current(), string(text)))
}

// forget deletes a revision: first its record, so that what is left of it is no revision.
func (l *lock) forget(ctx context.Context, r cluster.Revision) error {
	what := fmt.Sprintf("deleting revision %d", r.Number)
	if err := l.write(ctx, what, clientv3.OpDelete(l.fleet.keys.Revision(r.Number))); err != nil {
		return err
	}
	return l.write(ctx, what, clientv3.OpDelete(l.fleet.keys.Documents(r.Number), clientv3.WithPrefix()))
}
