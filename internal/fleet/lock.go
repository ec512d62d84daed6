// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
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
	// current is the revision of etcd at which key current was written last, and read tells whether that is known.
	current int64
	read    bool
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
	err := f.callAgain(ctx, "taking the lock", func(ctx context.Context) (err error) {
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
	err = f.callAgain(ctx, "taking the lock", func(ctx context.Context) (err error) {
		key := f.keys.Lock()
		r, err = f.etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, string(holder), clientv3.WithLease(l.session.Lease()))).
			Else(clientv3.OpGet(key)).Commit()
		return err
	})
	if err == nil {
		l.made = r.Header.Revision
	}
	if err == nil && !r.Succeeded {
		kvs := r.Responses[0].GetResponseRange().Kvs
		if err = f.locked(kvs); len(kvs) > 0 && kvs[0].Lease == int64(l.session.Lease()) { // by an attempt that had no answer
			l.made, err = kvs[0].CreateRevision, nil
		}
	}
	if err != nil {
		_ = l.session.Close()
		return nil, err
	}
	return l, nil
}

// locked returns why the lock cannot be taken: a LockedError, unless the key is none of culvert's.
func (f *Fleet) locked(kvs []*mvccpb.KeyValue) error {
	locked := new(LockedError)
	if len(kvs) == 0 {
		return locked
	}
	err := decode(kvs[0].Value, &locked.Holder)
	why := ""
	switch {
	case err != nil || locked.Holder.By == "":
		why = "it has no holder"
	case kvs[0].Lease == 0:
		why = "it has no lease, and so never ends"
	default:
		return locked
	}
	return &damagedLockError{f.keys.Lock(), why}
}

// damagedLockError says that the key of the lock is none of culvert's.
type damagedLockError struct{ key, why string }

// Error returns the error in one line.
func (e *damagedLockError) Error() string {
	return fmt.Sprintf("the key lock is no record of culvert's, since somebody has written it by hand (%s): no rollout begins until 'etcdctl del %s' takes it away",
		e.why, e.key)
}

// addDamagedLock adds that the lock is none of culvert's, if it is there and so.
func (f *Fleet) addDamagedLock(ctx context.Context, to *[]string) error {
	return f.callAgain(ctx, "reading "+f.keys.Lock(), func(ctx context.Context) error {
		r, err := f.etcd.Get(ctx, f.keys.Lock())
		if err != nil || len(r.Kvs) == 0 {
			return err
		}
		var damaged *damagedLockError
		if errors.As(f.locked(r.Kvs), &damaged) {
			*to = append(*to, damaged.Error())
		}
		return nil
	})
}

// rolloutStopped tells whether a rollout is under way that nobody goes on with, since nobody holds the lock. Both are read at one moment: a rollout
// that ends gives back the lock.
func (f *Fleet) rolloutStopped(ctx context.Context) (stopped bool, err error) {
	err = f.callAgain(ctx, "reading "+f.keys.Lock(), func(ctx context.Context) error {
		r, err := f.etcd.Txn(ctx).Then(clientv3.OpGet(f.keys.Lock()), clientv3.OpGet(f.keys.Current())).Commit()
		if err != nil {
			return err
		}
		var held *LockedError
		lock, current := r.Responses[0].GetResponseRange().Kvs, r.Responses[1].GetResponseRange().Kvs
		var c cluster.Current
		stopped = (len(lock) == 0 || !errors.As(f.locked(lock), &held)) && len(current) > 0 && decode(current[0].Value, &c) == nil && c.Rollout != nil
		return nil
	})
	return stopped, err
}

// Close gives the lock back.
func (l *lock) Close() { _ = l.session.Close() }

// lost is closed when the lease has ended.
func (l *lock) lost() <-chan struct{} { return l.session.Done() }

// errLost says that somebody else may have the lock by now.
var errLost = errors.New("the lock was lost, since etcd could not be reached in time: nothing more was written; " +
	"'culvert fleet apply --resume' goes on, 'culvert fleet rollback' goes back")

// write writes keys as long as the lock is held, all of them or none. What it writes nobody else has written, so that it may be written
// twice.
func (l *lock) write(ctx context.Context, what string, ops ...clientv3.Op) error {
	return l.fleet.callAgain(ctx, what, func(ctx context.Context) error {
		r, err := l.fleet.etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(l.fleet.keys.Lock()), "=", l.made)).Then(ops...).Commit()
		if err == nil && !r.Succeeded {
			return errLost
		}
		return err
	})
}

// writeCurrent writes what nodes are to run. An attempt that had no answer and is carried out late changes nothing, since it compares the key
// with what it was.
func (l *lock) writeCurrent(ctx context.Context, c cluster.Current) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	key, lock := l.fleet.keys.Current(), l.fleet.keys.Lock()
	return l.fleet.callAgain(ctx, "writing what nodes are to run", func(ctx context.Context) error {
		if !l.read {
			r, err := l.fleet.etcd.Get(ctx, key)
			if err != nil {
				return err
			}
			if len(r.Kvs) > 0 {
				l.current = r.Kvs[0].ModRevision
			}
			l.read = true
		}
		r, err := l.fleet.etcd.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(lock), "=", l.made), clientv3.Compare(clientv3.ModRevision(key), "=", l.current)).
			Then(clientv3.OpPut(key, string(text))).Else(clientv3.OpGet(lock), clientv3.OpGet(key)).Commit()
		if err != nil {
			return err
		}
		if r.Succeeded {
			l.current = r.Header.Revision
			return nil
		}
		held, is := r.Responses[0].GetResponseRange().Kvs, r.Responses[1].GetResponseRange().Kvs
		switch {
		case len(held) == 0 || held[0].CreateRevision != l.made:
			return errLost
		case len(is) > 0 && string(is[0].Value) == string(text): // by an attempt that had no answer
			l.current = is[0].ModRevision
			return nil
		}
		return errors.New("somebody has written it without the lock: see 'culvert fleet status', then repeat this")
	})
}

// forget deletes a revision: first its record, so that what is left of it is no revision.
func (l *lock) forget(ctx context.Context, r cluster.Revision) error {
	what := fmt.Sprintf("deleting revision %d", r.Number)
	if err := l.write(ctx, what, clientv3.OpDelete(l.fleet.keys.Revision(r.Number))); err != nil {
		return err
	}
	return l.write(ctx, what, clientv3.OpDelete(l.fleet.keys.Documents(r.Number), clientv3.WithPrefix()))
}
