// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"culvert/internal/cluster"
	"culvert/internal/cluster/access"
)

// TestForget has a rollout meet nodes, of which one goes: it is missed until it is forgotten, and missed again after a rollout has met it again.
func TestForget(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.add("a:lb", "b:lb")
	away := func() []string {
		t.Helper()
		s, err := b.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(strings.Join(s.Differs, "\n"), "not there: b"); told != slices.Contains(s.Away, "b") {
			t.Errorf("away %v, and told %v", s.Away, s.Differs)
		}
		return s.Away
	}
	if err := b.apply(doc("one")); err != nil || len(away()) > 0 {
		t.Fatalf("away %v, error %v", away(), err)
	}
	b.lose("b")
	if got := away(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("away %v", got)
	}
	if s, err := b.Status(t.Context()); err != nil || !strings.Contains(s.Lines()[0], ": 1 node and 1 away, revision 1") {
		t.Errorf("%v, error %v", s.Lines(), err)
	}
	if err := b.apply(doc("two")); err != nil || !strings.Contains(b.out.String(), "not there: b") {
		t.Errorf("error %v\n%s", err, b.out)
	}
	if err := b.Forget(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if got := away(); len(got) > 0 {
		t.Errorf("away %v after it was forgotten", got)
	}
	for _, name := range []string{"b", "c"} {
		if err := b.Forget(t.Context(), name); err == nil || !strings.Contains(err.Error(), "no rollout has met a node "+name) {
			t.Errorf("forgetting %s: %v", name, err)
		}
	}
	b.add("b:lb")
	if err := b.apply(doc("three")); err != nil {
		t.Fatal(err)
	}
	b.lose("b")
	if got := away(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("away %v after it was met again", got)
	}
	if _, err := b.etcd.Put(t.Context(), b.keys.Known(), "x"); err != nil {
		t.Fatal(err)
	}
	if err := b.Forget(t.Context(), "b"); err == nil || !strings.Contains(err.Error(), "the key known is no record of culvert's") {
		t.Errorf("a key by hand: %v", err)
	}
}

// TestKnownAtOnce has rollouts meet nodes while others are forgotten and revoked: none of these changes takes another one back.
func TestKnownAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	const n = 6
	node := func(kind string, i int) string { return fmt.Sprintf("%s%d", kind, i) }
	before, want := make(States), make(States)
	for i := range n {
		before[node("forgotten", i)], before[node("revoked", i)] = cluster.State{}, cluster.State{}
		want[node("met", i)] = cluster.State{}
	}
	b.meet(t.Context(), before)
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() { b.meet(t.Context(), States{node("met", i): {}}) })
		work.Go(func() {
			if err := b.Forget(t.Context(), node("forgotten", i)); err != nil {
				t.Error(err)
			}
		})
		work.Go(func() {
			if err := access.Forget(t.Context(), b.etcd, b.keys, node("revoked", i)); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	var known cluster.Known
	if _, err := b.get(t.Context(), b.keys.Known(), &known); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(known)); !slices.Equal(got, want.Names()) {
		t.Errorf("known are %v, want %v", got, want.Names())
	}
}
