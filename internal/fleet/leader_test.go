// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"testing"
	"time"

	"culvert/internal/cluster"
	"culvert/internal/cluster/clusterbed"
)

// What etcd's leader is asked in its last moments is asked again: a rollout goes on with the next leader.
func TestLeaderDies(t *testing.T) {
	t.Parallel()
	bed := clusterbed.New(t, clusterbed.Options{Members: 3})
	f := New(bed.Client(), "test", "me@here")
	first := bed.Leader()
	first.Kill()
	l, err := f.lock(t.Context(), "apply")
	if err != nil {
		t.Fatal(err)
	}
	first.Start()
	bed.Leader().Kill()
	if err := l.writeCurrent(t.Context(), cluster.Current{Revision: 7}); err != nil {
		t.Fatal(err)
	}
	if c, err := f.Current(t.Context()); err != nil || c.Revision != 7 {
		t.Errorf("%+v, %v", c, err)
	}
	l.Close()
}

// An urgent change that the leader has not answered is written with the next one, once.
func TestUrgentWhileLeaderDies(t *testing.T) {
	t.Parallel()
	bed := clusterbed.New(t, clusterbed.Options{Members: 3})
	f := New(bed.Client(), "test", "me@here")
	bed.Leader().Kill()
	request, err := json.Marshal(rule("one"))
	if err != nil {
		t.Fatal(err)
	}
	u := cluster.Urgent{Scope: everywhere, Words: "filter add", Request: request, At: time.Now().UTC(), For: time.Hour, By: "me@here"}
	if err := f.writeUrgent(t.Context(), &u); err != nil {
		t.Fatal(err)
	}
	first := u.ID
	if err := f.writeUrgent(t.Context(), &u); err != nil || u.ID != first { // as if there had been no answer
		t.Errorf("%s is written as %s too, error %v", first, u.ID, err)
	}
	all, err := f.Urgents(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != first || all[0].Left == 0 {
		t.Errorf("%+v, error %v", all, err)
	}
	u.By = "somebody@else"
	if err := f.writeUrgent(t.Context(), &u); err != nil || u.ID == first {
		t.Errorf("%s has the ID of another change, error %v", u.ID, err)
	}
}

// What was written by an attempt without an answer is not written again, and what somebody has written without the lock stays.
func TestCurrentIsComparedBeforeItIsWritten(t *testing.T) {
	t.Parallel()
	f := New(clusterbed.New(t, clusterbed.Options{}).Client(), "test", "me@here")
	l, err := f.lock(t.Context(), "apply")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	seven := cluster.Current{Revision: 7}
	if err := l.writeCurrent(t.Context(), seven); err != nil {
		t.Fatal(err)
	}
	written := l.current
	l.current = 0 // as if there had been no answer
	if err := l.writeCurrent(t.Context(), seven); err != nil || l.current != written {
		t.Errorf("%v, written at %d and at %d", err, written, l.current)
	}
	if err := f.put(t.Context(), f.keys.Current(), cluster.Current{Revision: 3}); err != nil {
		t.Fatal(err)
	}
	if err := l.writeCurrent(t.Context(), seven); err == nil {
		t.Error("a write by hand is overwritten")
	}
	if c, err := f.Current(t.Context()); err != nil || c.Revision != 3 {
		t.Errorf("%+v, %v", c, err)
	}
}
