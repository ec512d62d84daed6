// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

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
