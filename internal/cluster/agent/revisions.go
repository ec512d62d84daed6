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
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

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
	running, refused, twin := revisionOf(a.is.running), a.is.refusedNumber, a.is.twin
	a.mu.Unlock()
	switch {
	case !known || twin != "": // which of two nodes of a name is meant, nobody knows
		return
	case bad != "":
		a.refuse(none, errors.New(bad))
		return
	case number == running:
		a.accept(nil)
		return
	case number == refused:
		return
	}
	set, err := a.fetch(ctx, number)
	var untrue *untrueError
	switch {
	case ctx.Err() != nil:
		return
	case errors.As(err, &untrue):
		a.refuse(number, err)
		return
	case err != nil: // the session tells when etcd is there again
		a.Log.Warn("the documents of a revision could not be read: this is tried again", "revision", number, "err", etcd.Reason(err))
		sleep(ctx, firstPause+rand.N(firstPause))
		a.revisions.wake()
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
			i.running, i.digest = set, set.Digest()
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
	if !told {
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
		return nil, errors.New("there is no connection to etcd")
	}
	scopes := []cluster.Scope{{Kind: cluster.ScopeAll}}
	for _, r := range a.Roles {
		scopes = append(scopes, cluster.Scope{Kind: cluster.ScopeRole, Name: r})
	}
	scopes = append(scopes, cluster.Scope{Kind: cluster.ScopeNode, Name: a.Node})
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
	records := r.Responses[0].GetResponseRange().Kvs
	if len(records) == 0 {
		return nil, &untrueError{fmt.Errorf("revision %d is not whole: it has no record", number)}
	}
	var record cluster.Revision
	if err := json.Unmarshal(records[0].Value, &record); err != nil {
		return nil, &untrueError{fmt.Errorf("revision %d: its record is not as 'culvert fleet' writes it: %w", number, err)}
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
		if sum := sha256.Sum256(kvs[0].Value); hex.EncodeToString(sum[:]) != want {
			return nil, &untrueError{fmt.Errorf("revision %d: document %s was changed after it was written", number, s)}
		}
		set.Documents = append(set.Documents, lastgood.Document{Scope: s.String(), Text: kvs[0].Value})
	}
	if a.Fetch != nil {
		if err := a.Fetch(ctx, client, record); err != nil {
			return nil, err
		}
	}
	return set, nil
}
