// SPDX-License-Identifier: Apache-2.0

// Package fleet has what an operator does with the nodes of a cluster: changes of their configuration in steps, urgent changes,
// looks at all of them, maintenance. culvert/internal/cluster has the layout of keys and records that nodes and operators share.
package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/etcd"
)

// callTime bounds a call to etcd. Without a quorum etcd answers nothing, and an operator is not to wait for long.
const callTime = 5 * time.Second

// Fleet is a cluster, as an operator sees it.
type Fleet struct {
	etcd *clientv3.Client
	keys cluster.Keys
	name string
	// by says who the operator is.
	by string
	// probe says why no member of etcd lets this side in. It is nil where nobody asks.
	probe func(context.Context) error
	// answered tells whether etcd has answered. From then on one that is away is waited for.
	answered atomic.Bool
	// announceWait is how long ResumeNode waits at most until the node announces.
	announceWait time.Duration
}

// New returns the cluster of a name. by says who the operator is, in revisions, urgent changes and the audit.
func New(etcd *clientv3.Client, name, by string) *Fleet {
	return &Fleet{etcd: etcd, keys: cluster.KeysOf(name), name: name, by: by, announceWait: AnnounceWait}
}

// Name returns the name of the cluster.
func (f *Fleet) Name() string { return f.name }

// Close closes the connection.
func (f *Fleet) Close() error { return f.etcd.Close() }

// call calls do with the time that a call to etcd may take, and says in plain words why it has failed.
func (f *Fleet) call(ctx context.Context, what string, do func(context.Context) error) error {
	return f.told(ctx, what, func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		return do(limited)
	})
}

// denied says why etcd may have answered that a certificate may not do something: who may read the cluster is no writer, and who may not is
// nobody here.
func (f *Fleet) denied(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if _, err := f.etcd.Get(ctx, f.keys.Current(), clientv3.WithCountOnly()); errors.Is(err, rpctypes.ErrPermissionDenied) {
		return fmt.Errorf("etcd refuses this certificate: it was revoked, or no cluster here is called %s (name in [cluster]): see 'culvert cluster list'", f.name)
	}
	return plain(rpctypes.ErrPermissionDenied)
}

// firstTry bounds the first attempt of what may be asked twice. What a leader of etcd was asked in its last moments is never answered, and
// another leader is there after a second or two.
const firstTry = 2 * time.Second

// callAgain is call for what may be done twice: a read, or a write that is the same then. It tries again, for firstTry and callTime at most,
// while members of etcd cannot be reached or have no leader.
func (f *Fleet) callAgain(ctx context.Context, what string, do func(context.Context) error) error {
	return f.told(ctx, what, func(ctx context.Context) error {
		end := time.Now().Add(firstTry + callTime)
		for limit := firstTry; ; limit = callTime {
			limited, cancel := context.WithTimeout(ctx, min(limit, time.Until(end)))
			err := do(limited)
			cancel()
			if err == nil || ctx.Err() != nil || !etcd.Unanswered(err) || time.Until(end) < pause {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause):
			}
		}
	})
}

// probeAfter is how long etcd has for an answer until its members are probed.
const probeAfter = 300 * time.Millisecond

// told calls do and says in plain words why it has failed. If etcd has not answered yet and no member can let this side in, as with a certificate
// of another cluster or where nobody listens, it says so at once. Otherwise an etcd that is away is waited for.
func (f *Fleet) told(ctx context.Context, what string, do func(context.Context) error) error {
	var shut *etcd.ShutError
	guarded := func(ctx context.Context) (err error) {
		if f.probe == nil {
			return do(ctx)
		}
		shut, err = etcd.Guarded(ctx, probeAfter, f.probe, !f.answered.Load(), do)
		return err
	}
	err := guarded(ctx)
	switch {
	case err == nil:
		f.answered.Store(true)
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case shut != nil && etcd.Unanswered(err):
		return fmt.Errorf("%s, cluster %s: %w; nodes go on with what they run", what, f.name, shut)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		err = f.denied(ctx)
	}
	return fmt.Errorf("%s in etcd, cluster %s: %w", what, f.name, plain(err))
}

// pause is the time between two attempts.
const pause = 100 * time.Millisecond

// plain says in plain words why etcd has not done something.
func plain(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, rpctypes.ErrNoLeader), errors.Is(err, rpctypes.ErrTimeout),
		errors.Is(err, rpctypes.ErrGRPCNoLeader):
		return errors.New("no answer in time: it cannot be reached, or most of its members are down; nodes go on with what they run")
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return errors.New("this certificate may not: use one for a writer (culvert cluster issue)")
	case errors.Is(err, rpctypes.ErrNoSpace):
		return errors.New("its database is full: defragment it and disarm the alarm (etcdctl defrag, etcdctl alarm disarm)")
	}
	return err
}

// get reads the record of a key into to. It returns the key's revision of its last change, 0 if there is no key.
func (f *Fleet) get(ctx context.Context, key string, to any) (changed int64, err error) {
	err = f.callAgain(ctx, "reading "+key, func(ctx context.Context) error {
		r, err := f.etcd.Get(ctx, key)
		if err != nil || len(r.Kvs) == 0 {
			return err
		}
		changed = r.Kvs[0].ModRevision
		return decode(r.Kvs[0].Value, to)
	})
	return changed, err
}

// list calls do for each key with a prefix, in the order of keys.
func (f *Fleet) list(ctx context.Context, prefix string, do func(rest string, value []byte) error) error {
	var kvs []*mvccpb.KeyValue
	err := f.callAgain(ctx, "reading "+prefix, func(ctx context.Context) error {
		r, err := f.etcd.Get(ctx, prefix, clientv3.WithPrefix())
		if err == nil {
			kvs = r.Kvs
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, kv := range kvs {
		if err := do(string(kv.Key[len(prefix):]), kv.Value); err != nil {
			return fmt.Errorf("reading %s in etcd, cluster %s: %w", prefix, f.name, err)
		}
	}
	return nil
}

// put writes the record of a key.
func (f *Fleet) put(ctx context.Context, key string, value any, options ...clientv3.OpOption) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return f.call(ctx, "writing "+key, func(ctx context.Context) error {
		_, err := f.etcd.Put(ctx, key, string(text), options...)
		return err
	})
}

// audit notes what was done. An error of it is no error of what was done.
func (f *Fleet) audit(ctx context.Context, did, on string, outcome error) {
	f.note(ctx, cluster.Audit{Did: did, On: on}, outcome)
}

// note is audit, with more than that.
func (f *Fleet) note(ctx context.Context, a cluster.Audit, outcome error) {
	a.At, a.By, a.Outcome = time.Now().UTC(), f.by, "done"
	var back *BackError
	switch {
	case errors.As(outcome, &back):
		a.Outcome, a.Why, a.Back = "back", back.Why, back.To
	case outcome != nil:
		a.Outcome, a.Why = "failed", outcome.Error()
	}
	key := fmt.Sprintf("%s%s-%s", f.keys.Audits(), a.At.Format("20060102T150405.000000000"), newID())
	_ = f.put(context.WithoutCancel(ctx), key, a)
}
