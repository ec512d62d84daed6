// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/etcd"
)

// compactedError says that etcd has forgotten changes that this node has not seen: all is read anew.
type compactedError struct{ at int64 }

func (e *compactedError) Error() string {
	return fmt.Sprintf("etcd has compacted its history up to revision %d", e.at)
}

// session follows etcd until something fails. It begins with a whole read at one revision of etcd, and goes on with watches from
// there, so that no change is missed and none is seen half.
func (a *Agent) session(ctx context.Context) error {
	client, err := a.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	at, err := a.begin(ctx, client)
	if err != nil {
		return err
	}
	back := false
	a.update(func(i *is) {
		if !i.reached {
			back = i.sessions > 0
			i.reached, i.since, i.problem = true, time.Now(), ""
		}
		i.sessions++
		i.confirmed = none // it may be another etcd, or one that has lost its data
	})
	if back {
		a.Log.Info("etcd answers again", "cluster", a.Cluster)
	}
	a.wakeAll()
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		cancel(a.report(ctx, client))
	}()
	err = a.watch(ctx, client, at+1)
	cancel(err)
	<-reported
	return context.Cause(ctx)
}

// wakeAll has all loops look at what etcd has said.
func (a *Agent) wakeAll() {
	for _, s := range []signal{a.revisions, a.urgents, a.maintains, a.reports} {
		s.wake()
	}
}

// lost notes that etcd does not answer.
func (a *Agent) lost(err error) {
	var again *compactedError
	if errors.Is(err, errRenewed) {
		return // connect tells
	}
	if errors.As(err, &again) {
		a.Log.Info("reading the cluster anew", "cluster", a.Cluster, "because", err)
		return
	}
	why := etcd.Reason(err)
	told, denied := false, denies(err)
	if denied {
		why = "etcd refuses this node: " + a.denied()
	}
	a.update(func(i *is) {
		if i.reached {
			i.reached, i.since, i.told = false, time.Now(), nil
		}
		i.problem = why
		told = i.tell(why)
	})
	if told && !denied {
		a.Log.Warn("etcd cannot be reached: what runs goes on", "cluster", a.Cluster, "err", why)
	}
	a.urgents.wake() // they may end by the clock from now on
}

// mostTold is how many reasons why etcd does not answer are logged until it does: some have numbers of ports, and differ each time.
const mostTold = 4

// tell notes a reason why etcd does not answer. It returns false if it was logged since etcd was lost.
func (i *is) tell(why string) bool {
	if len(i.told) >= mostTold || slices.Contains(i.told, why) {
		return false
	}
	i.told = append(i.told, why)
	return true
}

// Times of probes: how long etcd has for an answer until its members are probed, and the least time between two probes. Many nodes that come at
// once may keep etcd busy for long, and each probe makes a connection to each member.
const (
	probeAfter = 2 * time.Second
	probeAgain = 30 * time.Second
)

// begin is readAll, and says why no member of etcd lets the node in if that is so.
func (a *Agent) begin(ctx context.Context, client *clientv3.Client) (at int64, err error) {
	read := func(ctx context.Context) (err error) {
		at, err = a.readAll(ctx, client)
		return err
	}
	if a.Probe == nil || time.Since(a.probed) < probeAgain && !a.probed.IsZero() {
		err = read(ctx)
	} else if a.shut, err = etcd.Guarded(ctx, probeAfter, a.Probe, true, read); err != nil {
		a.probed = time.Now()
	}
	if a.shut != nil && ctx.Err() == nil && etcd.Unanswered(err) {
		return 0, a.shut
	}
	return at, err
}

// readAll reads what the node follows, at the one revision of etcd that it returns. It notes whether another process has the node's name before
// anything of that is known: otherwise a revision could run before the state is written, which tells the same.
func (a *Agent) readAll(ctx context.Context, client *clientv3.Client) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTime)
	defer cancel()
	r, err := client.Txn(ctx).Then(
		clientv3.OpGet(a.keys.Current()), clientv3.OpGet(a.keys.Urgents(), clientv3.WithPrefix()), clientv3.OpGet(a.keys.Maintain(a.Node)),
		clientv3.OpGet(a.keys.Twin(a.Node)), clientv3.OpGet(a.keys.Node(a.Node)),
	).Commit()
	if err != nil {
		return 0, err
	}
	if other := a.otherIn(r.Responses[4].GetResponseRange().Kvs); other != nil {
		if err := a.written(&twinError{other.Host}); err != nil {
			return 0, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	held := a.want.urgents
	current := a.want.current
	a.want = want{
		seen: true, missing: true, urgents: make(map[string]Held), urgentsBad: make(map[string]string), maintain: a.want.maintain, maintainBad: a.want.maintainBad,
	}
	for _, kv := range r.Responses[0].GetResponseRange().Kvs {
		a.want.current = current // stays if the key is none
		a.want.setCurrent(kv.Value)
	}
	for _, kv := range r.Responses[1].GetResponseRange().Kvs {
		a.setUrgent(kv, held)
	}
	if kvs := r.Responses[2].GetResponseRange().Kvs; len(kvs) > 0 {
		a.setMaintain(kvs[0].Value)
	} else {
		a.want.maintain, a.want.maintainBad = false, ""
	}
	a.want.setSecond(r.Responses[3].GetResponseRange().Kvs)
	return r.Header.Revision, nil
}

// setCurrent takes the key current. One that is none leaves the last one, and is told.
func (w *want) setCurrent(value []byte) {
	w.missing = false
	var c cluster.Current
	if err := json.Unmarshal(value, &c); err != nil {
		w.currentBad = fmt.Sprintf("the key current is not as 'culvert fleet' writes it: %v", err)
		return
	}
	if c.Revision < 0 {
		w.currentBad = fmt.Sprintf("the key current has revision %d", c.Revision)
		return
	}
	w.current, w.currentBad = c, ""
}

// setUrgent takes an urgent change. One that is in before keeps the end that it had there.
func (a *Agent) setUrgent(kv *mvccpb.KeyValue, before map[string]Held) {
	id := a.forgetUrgent(kv)
	var h Held
	err := json.Unmarshal(kv.Value, &h.Urgent)
	if err == nil {
		err = cluster.CheckID(id)
	}
	if err != nil {
		a.want.urgentsBad[id] = fmt.Sprintf("the key is not as 'culvert fleet' writes it: %v", err)
		return
	}
	h.ID = id // the key says in which order they come
	var request bytes.Buffer
	if json.Compact(&request, h.Request) == nil { // as a journal has it
		h.Request = request.Bytes()
	}
	if !h.Scope.Holds(a.Node, a.Roles) {
		return
	}
	switch {
	case h.For <= 0:
	case slices.Contains(a.over, OverOf(h.Urgent)):
		h.Until = 1 // the clock is past it
	default:
		h.Until = Clock() + h.For
		if had, ok := before[id]; ok && had.Until > 0 {
			h.Until = min(h.Until, had.Until)
		}
	}
	a.want.urgents[id] = h
}

// forgetUrgent forgets what is known of an urgent change, and returns its ID: the last part of its key, which by hand may be long.
func (a *Agent) forgetUrgent(kv *mvccpb.KeyValue) (id string) {
	const most = 32
	id = short(strings.TrimPrefix(string(kv.Key), a.keys.Urgents()), most)
	delete(a.want.urgents, id)
	delete(a.want.urgentsBad, id)
	return id
}

// watch follows the keys that the node looks at, from a revision of etcd on.
func (a *Agent) watch(ctx context.Context, client *clientv3.Client, from int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	one := func(key string, o ...clientv3.OpOption) clientv3.WatchChan {
		return client.Watch(ctx, key, append(o, clientv3.WithRev(from))...)
	}
	current, maintain, second := one(a.keys.Current()), one(a.keys.Maintain(a.Node)), one(a.keys.Twin(a.Node))
	urgents, asks := one(a.keys.Urgents(), clientv3.WithPrefix()), one(a.keys.Asks(), clientv3.WithPrefix(), clientv3.WithFilterDelete())
	for {
		var r clientv3.WatchResponse
		var ok bool
		var take func(*clientv3.Event)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case r, ok = <-current:
			take = a.sawCurrent
		case r, ok = <-maintain:
			take = a.sawMaintain
		case r, ok = <-second:
			take = a.sawSecond
		case r, ok = <-urgents:
			take = a.sawUrgent
		case r, ok = <-asks:
			take = func(e *clientv3.Event) { a.sawAsk(ctx, client, e) }
		}
		switch {
		case r.CompactRevision != 0:
			return &compactedError{r.CompactRevision}
		case r.Err() != nil:
			return r.Err()
		case !ok:
			return errors.New("etcd has ended the watch")
		}
		for _, e := range r.Events {
			take(e)
		}
	}
}

func (a *Agent) sawCurrent(e *clientv3.Event) {
	a.mu.Lock()
	if e.Type == mvccpb.DELETE {
		a.want.current, a.want.currentBad, a.want.missing = cluster.Current{}, "", true
	} else {
		a.want.setCurrent(e.Kv.Value)
	}
	a.mu.Unlock()
	a.revisions.wake()
	a.reports.wake()
}

func (a *Agent) sawMaintain(e *clientv3.Event) {
	a.mu.Lock()
	if e.Type == mvccpb.DELETE {
		a.want.maintain, a.want.maintainBad = false, ""
	} else {
		a.setMaintain(e.Kv.Value)
	}
	a.mu.Unlock()
	a.maintains.wake()
}

// setMaintain takes the key of the node's maintenance. One that is none leaves the node as it is, in service or not, and is logged once.
func (a *Agent) setMaintain(value []byte) {
	_, err := cluster.ParseMaintain(value)
	if err == nil {
		a.want.maintain, a.want.maintainBad = true, ""
		return
	}
	if why := oneLine(err); why != a.want.maintainBad {
		a.want.maintainBad = why
		a.Log.Warn("the key of this node's maintenance is not as 'culvert fleet' writes it: it is not obeyed", "key", a.keys.Maintain(a.Node), "err", why)
	}
}

func (a *Agent) sawUrgent(e *clientv3.Event) {
	a.mu.Lock()
	if e.Type == mvccpb.DELETE {
		a.forgetUrgent(e.Kv)
	} else {
		a.setUrgent(e.Kv, nil)
	}
	a.mu.Unlock()
	a.urgents.wake()
	a.reports.wake()
}

// sawAsk answers a question to this node.
func (a *Agent) sawAsk(ctx context.Context, client *clientv3.Client, e *clientv3.Event) {
	var q cluster.Ask
	err := json.Unmarshal(e.Kv.Value, &q)
	// The key says what kind it is: by that etcd tells who may ask.
	q.Kind, _, _ = strings.Cut(strings.TrimPrefix(string(e.Kv.Key), a.keys.Asks()), "/")
	if err != nil || q.ID == "" || !q.Scope.Holds(a.Node, a.Roles) {
		return
	}
	go func() {
		select {
		case a.answering <- struct{}{}:
			defer func() { <-a.answering }()
			a.answer(ctx, client, q)
		case <-ctx.Done():
		}
	}()
}
