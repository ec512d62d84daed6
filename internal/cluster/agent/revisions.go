// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"

	"culvert/internal/cluster"
	"culvert/internal/cluster/etcd"
	"culvert/internal/cluster/lastgood"
)

// refusedAgain is about how long after a refusal the node tries the same revision again: what it has missed on the host may be there.
const refusedAgain = 30 * time.Second

// revisionLoop has the node run the revision that it is to run.
func (a *Agent) revisionLoop(ctx context.Context) {
	for {
		a.followRevision(ctx)
		again := time.NewTimer(refusedAgain + rand.N(refusedAgain/4))
		select {
		case <-ctx.Done():
			again.Stop()
			return
		case <-a.revisions:
		case <-again.C:
			a.mu.Lock()
			a.is.refusedNumber = none
			a.mu.Unlock()
		}
		again.Stop()
	}
}

// wanted returns the revision that the node is to run. bad says why that is not known.
func (a *Agent) wanted() (number int64, bad string, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.want.currentBad != "" {
		return 0, a.want.currentBad, a.want.seen
	}
	// An etcd that has lost its data, or is another one, is no reason to run without the documents. A revision 0 that is written is.
	if a.want.missing && revisionOf(a.is.running) != 0 {
		return 0, "etcd has no key current any more, as if its data were lost: what runs goes on until 'culvert fleet apply' writes a revision", a.want.seen
	}
	return a.want.current.Of(a.Node), "", a.want.seen
}

func (a *Agent) followRevision(ctx context.Context) {
	number, bad, known := a.wanted()
	a.mu.Lock()
	running, refused, twin, confirmed := revisionOf(a.is.running), a.is.refusedNumber, a.is.twin, a.is.confirmed
	a.mu.Unlock()
	switch {
	case !known || twin != "": // which of two nodes of a name is meant, nobody knows
		return
	case bad != "":
		a.refuse(none, errors.New(bad))
		return
	case number == running && (number == 0 || number == confirmed):
		a.accept(nil)
		return
	case number == refused:
		return
	}
	var set *lastgood.Set
	var err error
	same := false
	if number == running {
		same, err = a.runsAlready(ctx, number)
	}
	if err == nil && !same {
		set, err = a.fetch(ctx, number)
	}
	var untrue *untrueError
	switch {
	case ctx.Err() != nil:
		return
	case errors.As(err, &untrue):
		a.refuse(number, err)
		return
	case err != nil:
		a.retry(ctx, number, err)
		return
	case same:
		a.update(func(i *is) { i.confirmed, i.unread = number, "" })
		a.accept(nil)
		return
	}
	if err := a.Plane.Run(ctx, set); err != nil {
		if ctx.Err() == nil {
			a.refuse(number, err)
		}
		return
	}
	a.Log.Info("the cluster's documents are in force", "cluster", a.Cluster, "revision", number)
	a.accept(set)
	a.keep(set)
	a.urgents.wake() // some may have failed for want of what is there now
}

// retry has a revision be read again that could not be read, and logs why once.
func (a *Agent) retry(ctx context.Context, number int64, err error) {
	why, told := etcd.Reason(err), false
	a.update(func(i *is) { told, i.unread = i.unread == why, why })
	if !told {
		a.Log.Warn("the documents of a revision could not be read: this is tried again", "revision", number, "err", why)
	}
	sleep(ctx, firstPause+rand.N(firstPause))
	a.revisions.wake()
}

// keep stores what runs.
func (a *Agent) keep(set *lastgood.Set) {
	if a.Keep == nil {
		return
	}
	err := a.Keep(set)
	if err != nil {
		a.Log.Error("the next start may begin with older documents", "err", err)
	}
	a.update(func(i *is) {
		if i.keepProblem = ""; err != nil {
			i.keepProblem = err.Error()
		}
	})
}

func revisionOf(s *lastgood.Set) int64 {
	if s == nil {
		return 0
	}
	return s.Revision
}

// accept notes that the node runs what it is to run: set, or with nil what it ran before.
func (a *Agent) accept(set *lastgood.Set) {
	a.update(func(i *is) {
		i.refused, i.refusedNumber = "", none
		if set != nil {
			i.running, i.digest, i.confirmed, i.unread = set, set.Digest(), set.Revision, ""
		}
	})
}

// refuse notes why a revision does not run.
func (a *Agent) refuse(number int64, err error) {
	why := oneLine(err)
	told := false
	a.update(func(i *is) {
		told = i.refused == why
		i.refused, i.refusedNumber = why, number
	})
	switch {
	case told:
	case number == none:
		a.Log.Error("what is to run is not known: the last good revision goes on", "err", why)
	default:
		a.Log.Error("a revision of the cluster was refused: the last good one goes on", "revision", number, "err", why)
	}
}

func oneLine(err error) string {
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// untrueError says that what etcd has of a revision is not what was written as that revision.
type untrueError struct{ error }

// fetch reads the documents of a revision that are for this node, and compares them with the sums in the revision's record. So what
// somebody changes by hand afterwards, or a revision that is not whole, is never run.
func (a *Agent) fetch(ctx context.Context, number int64) (*lastgood.Set, error) {
	set := &lastgood.Set{Cluster: a.Cluster, Node: a.Node, Revision: number}
	if number == 0 {
		return set, nil
	}
	client := a.connected()
	if client == nil {
		return nil, errUnconnected
	}
	scopes := cluster.ScopesOf(a.Node, a.Roles)
	ops := []clientv3.Op{clientv3.OpGet(a.keys.Revision(number))}
	for _, s := range scopes {
		ops = append(ops, clientv3.OpGet(a.keys.Document(number, s)))
	}
	calling, cancel := context.WithTimeout(ctx, etcd.CallTime)
	defer cancel()
	r, err := client.Txn(calling).Then(ops...).Commit()
	if err != nil {
		return nil, err
	}
	record, err := recordOf(number, r.Responses[0].GetResponseRange().Kvs)
	if err != nil {
		return nil, err
	}
	for n, s := range scopes {
		want, listed := record.Documents[s.String()]
		kvs := r.Responses[n+1].GetResponseRange().Kvs
		switch {
		case !listed && len(kvs) == 0:
			continue
		case !listed:
			return nil, &untrueError{fmt.Errorf("revision %d: document %s was added after it was written", number, s)}
		case len(kvs) == 0:
			return nil, &untrueError{fmt.Errorf("revision %d: document %s is missing", number, s)}
		}
		if sumOf(kvs[0].Value) != want {
			return nil, &untrueError{fmt.Errorf("revision %d: document %s was changed after it was written", number, s)}
		}
		set.Documents = append(set.Documents, lastgood.Document{Scope: s.String(), Text: kvs[0].Value})
	}
	if a.Fetch != nil {
		err := a.Fetch(ctx, client, record)
		if err != nil && !ofEtcd(err) {
			err = &untrueError{err} // it is told, and tried again after a while
		}
		if err != nil {
			return nil, err
		}
	}
	set.Sets = record.SetsOf(a.Node, a.Roles)
	return set, nil
}

// ofEtcd tells whether a call to etcd has failed, as opposed to what it has answered and what the node's disk says.
func ofEtcd(err error) bool {
	var refused rpctypes.EtcdError
	var failed interface{ GRPCStatus() *status.Status }
	return errors.As(err, &refused) || errors.As(err, &failed) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// recordOf reads the record of a revision.
func recordOf(number int64, kvs []*mvccpb.KeyValue) (r cluster.Revision, err error) {
	if len(kvs) == 0 {
		return r, &untrueError{fmt.Errorf("revision %d is not whole: it has no record", number)}
	}
	if err := json.Unmarshal(kvs[0].Value, &r); err != nil {
		return r, &untrueError{fmt.Errorf("revision %d: its record is not as 'culvert fleet' writes it: %w", number, err)}
	}
	return r, nil
}

// runsAlready tells whether the documents of a revision are those that run under its number. They are not where etcd has lost its data and
// counts revisions from 1 again, or where this node has got other roles.
func (a *Agent) runsAlready(ctx context.Context, number int64) (bool, error) {
	client := a.connected()
	if client == nil {
		return false, errUnconnected
	}
	calling, cancel := context.WithTimeout(ctx, etcd.CallTime)
	defer cancel()
	r, err := client.Get(calling, a.keys.Revision(number))
	if err != nil {
		return false, err
	}
	record, err := recordOf(number, r.Kvs)
	if err != nil {
		return false, err
	}
	var want, has []string
	for _, s := range cluster.ScopesOf(a.Node, a.Roles) {
		if sum, listed := record.Documents[s.String()]; listed {
			want = append(want, s.String()+" "+sum)
		}
	}
	a.mu.Lock()
	running := a.is.running
	a.mu.Unlock()
	if running == nil { // it has gone back to its own file meanwhile
		return false, nil
	}
	for _, d := range running.Documents {
		has = append(has, d.Scope+" "+sumOf(d.Text))
	}
	return slices.Equal(want, has), nil
}

// errUnconnected says that there is no client yet.
var errUnconnected = errors.New("there is no connection to etcd")

// sumOf returns the SHA-256 of a document, in hexadecimal.
func sumOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
