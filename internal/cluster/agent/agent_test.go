// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/clusterbed"
	"culvert/internal/testbed"
)

func urgent(id, words string, scope cluster.Scope) cluster.Urgent {
	return cluster.Urgent{ID: id, Scope: scope, Words: words, Request: json.RawMessage(`{}`)}
}

var all = cluster.Scope{Kind: cluster.ScopeAll}

// TestFollow has a node run revisions, refuse one, and go on with the last good one.
func TestFollow(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	n := b.start("n1", b.with)
	b.eventually("the first state", func() bool { s := b.state("n1"); return s.Revision == 0 && s.Health == cluster.HealthGood })

	first := map[string]string{"all": "a = 1\n", "role/lb": "b = 1\n", "role/other": "bad\n", "node/n1": "c = 1\n", "node/n2": "bad\n"}
	b.write(1, first)
	b.eventually("revision 1", func() bool { s := b.state("n1"); return s.Revision == 1 && s.Wanted == 0 && s.Digest != "" })
	b.eventually("it is kept", func() bool { set, _ := n.store.Load("edge", "n1"); return set != nil })
	set, problem := n.store.Load("edge", "n1")
	if problem != nil || set.Revision != 1 || len(set.Documents) != 3 || set.Documents[1].Scope != "role/lb" {
		t.Errorf("kept %+v, problem %v", set, problem)
	}
	second := map[string]string{"all": "bad\n"}
	b.write(2, second)
	b.eventually("the refusal", func() bool {
		s := b.state("n1")
		return s.Refused == errUnchecked.Error() && s.Revision == 1 && s.Wanted == 2
	})
	if set, _ := n.store.Load("edge", "n1"); set.Revision != 1 {
		t.Errorf("kept revision %d after a refusal", set.Revision)
	}
	// A rollout that has reached this node goes before the revision of all.
	third := map[string]string{"all": "a = 3\n"}
	b.write(3, third)
	b.put(b.keys.Current(), cluster.Current{Revision: 1, Rollout: &cluster.Rollout{To: 3, Nodes: []string{"n2"}}})
	b.eventually("what was refused is wanted no more", func() bool { s := b.state("n1"); return s.Refused == "" && s.Wanted == 0 })
	b.put(b.keys.Current(), cluster.Current{Revision: 1, Rollout: &cluster.Rollout{To: 3, Nodes: []string{"n2", "n1"}}})
	b.eventually("revision 3", func() bool { return b.state("n1").Revision == 3 })
	b.put(b.keys.Current(), cluster.Current{Revision: 1})
	b.eventually("back to revision 1", func() bool { return b.state("n1").Revision == 1 })
	// Without the key, as after a loss of etcd's data, what runs goes on.
	if _, err := b.Delete(t.Context(), b.keys.Current()); err != nil {
		t.Fatal(err)
	}
	b.eventually("the loss is told", func() bool {
		s := b.state("n1")
		return strings.Contains(s.Refused, "no key current") && s.Revision == 1
	})
	b.put(b.keys.Current(), cluster.Current{})
	b.eventually("the own file", func() bool { s := b.state("n1"); return s.Revision == 0 && s.Digest == "" })
	b.neverUnchecked(n, first, second, third)
}

// TestUntrue refuses revisions that are not as they were written, and keys that somebody wrote by hand.
func TestUntrue(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	n := b.start("n1", b.with)
	good := map[string]string{"all": "a = 1\n"}
	b.write(1, good)
	b.eventually("revision 1", func() bool { return n.Revision() == 1 })
	for _, c := range []struct {
		what, want string
		do         func()
	}{
		{"no record", "revision 7 is not whole", func() {
			b.put(b.keys.Document(7, all), "a = 7\n")
			b.put(b.keys.Current(), cluster.Current{Revision: 7})
		}},
		{"a record that is no JSON", "its record is not as", func() {
			b.put(b.keys.Revision(8), "{")
			b.put(b.keys.Current(), cluster.Current{Revision: 8})
		}},
		{"a changed document", "document all was changed after it was written", func() {
			b.put(b.keys.Revision(9), cluster.Revision{Number: 9, Documents: map[string]string{"all": strings.Repeat("0", 64)}})
			b.put(b.keys.Document(9, all), "a = 10\n")
			b.put(b.keys.Current(), cluster.Current{Revision: 9})
		}},
		{"an added document", "document node/n1 was added", func() {
			b.put(b.keys.Current(), cluster.Current{Revision: 1})
			b.put(b.keys.Revision(10), cluster.Revision{Number: 10})
			b.put(b.keys.Document(10, cluster.Scope{Kind: cluster.ScopeNode, Name: "n1"}), "a = 1\n")
			b.put(b.keys.Current(), cluster.Current{Revision: 10})
		}},
		{"a missing document", "document role/lb is missing", func() {
			b.put(b.keys.Revision(11), cluster.Revision{Number: 11, Documents: map[string]string{"role/lb": "00"}})
			b.put(b.keys.Current(), cluster.Current{Revision: 11})
		}},
		{"current that is no JSON", "the key current is not as", func() { b.put(b.keys.Current(), "revision = 1") }},
		{"current below 0", "the key current has revision -1", func() { b.put(b.keys.Current(), cluster.Current{Revision: -1}) }},
	} {
		c.do()
		b.eventually(c.what, func() bool { s := b.state("n1"); return strings.Contains(s.Refused, c.want) && s.Revision == 1 })
	}
	b.put(b.keys.Urgent("00000009"), "no JSON")
	b.put(b.keys.Urgent("00000010"), urgent("x", "", all))
	b.eventually("urgent changes that are none", func() bool {
		s := b.state("n1")
		return strings.Contains(s.UrgentFailed["00000009"], "not as 'culvert fleet' writes it") && s.UrgentFailed["00000010"] != ""
	})
	b.put(b.keys.Current(), cluster.Current{Revision: 1})
	b.eventually("the good revision", func() bool { s := b.state("n1"); return s.Refused == "" && s.Revision == 1 })
	b.neverUnchecked(n, good)
}

// TestUrgent has urgent changes in force until their keys go.
func TestUrgent(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	n := b.start("n1", b.with)
	b.put(b.keys.Urgent("00000001"), urgent("00000001", "filter add", all))
	b.put(b.keys.Urgent("00000002"), urgent("00000002", "filter add", cluster.Scope{Kind: cluster.ScopeRole, Name: "other"}))
	b.put(b.keys.Urgent("00000003"), urgent("00000003", "filter add", cluster.Scope{Kind: cluster.ScopeRole, Name: "lb"}))
	b.eventually("two of three in force", func() bool {
		s := b.state("n1")
		return slices.Equal(s.Urgent, []string{"00000001", "00000003"})
	})
	if _, err := b.Delete(t.Context(), b.keys.Urgent("00000001")); err != nil {
		t.Fatal(err)
	}
	b.eventually("one in force", func() bool {
		return n.Since("00000001").IsZero() && slices.Equal(b.state("n1").Urgent, []string{"00000003"})
	})
	lease, err := b.Grant(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	b.put(b.keys.Urgent("00000004"), cluster.Urgent{ID: "00000004", Scope: all, Words: "filter add", For: time.Second}, clientv3.WithLease(lease.ID))
	b.eventually("one with an end in force", func() bool { return !n.Since("00000004").IsZero() })
	b.eventually("its end", func() bool { return n.Since("00000004").IsZero() })
	b.eventually("nothing of it in the state once its key is gone", func() bool {
		r, err := b.Get(t.Context(), b.keys.Urgent("00000004"))
		return err == nil && len(r.Kvs) == 0 && len(b.state("n1").UrgentOver) == 0
	})
}

// TestMaintain brings a node into maintenance and out of it, also over a restart.
func TestMaintain(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	n := b.start("n1", b.with)
	b.put(b.keys.Maintain("n1"), cluster.Maintain{By: "somebody", At: time.Now()})
	b.eventually("safe", func() bool { s := b.state("n1"); return s.Maintain == cluster.MaintainSafe })
	n.stop()
	n = b.start("n1", b.with, func(o *agent.Options) { o.Maintained = true })
	b.eventually("safe again", func() bool { return n.View().Maintain == cluster.MaintainSafe })
	if _, err := b.Delete(t.Context(), b.keys.Maintain("n1")); err != nil {
		t.Fatal(err)
	}
	b.eventually("back", func() bool { return b.state("n1").Maintain == "" && !n.Maintained() })
}

// TestMaintainByHand writes what is no maintenance into a node's key: it stays as it is, in service or not, also over a restart.
func TestMaintainByHand(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	var log testbed.Output
	logged := func(o *agent.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }
	n := b.start("n1", b.with, logged)
	b.eventually("it is there", func() bool { return b.state("n1").Node != "" })
	const told = "is not obeyed"
	for i, text := range []string{"junk", "{}", `"yes"`} {
		b.put(b.keys.Maintain("n1"), text)
		b.eventually("it is told", func() bool { return n.Maintained() || strings.Count(log.String(), told) > i })
		if n.Maintained() || n.View().Maintain != "" {
			t.Fatalf("%s is obeyed", text)
		}
	}
	b.put(b.keys.Maintain("n1"), cluster.Maintain{By: "somebody", At: time.Now()})
	b.eventually("a maintenance", func() bool { return b.state("n1").Maintain == cluster.MaintainSafe })
	before := strings.Count(log.String(), told)
	b.put(b.keys.Maintain("n1"), "junk")
	b.eventually("it is told", func() bool { return !n.Maintained() || strings.Count(log.String(), told) > before })
	if !n.Maintained() {
		t.Error("it ends the maintenance")
	}
	n.stop()
	n = b.start("n1", b.with, logged, func(o *agent.Options) { o.Maintained = true })
	b.eventually("it goes on after a restart", func() bool { v := n.View(); return v.Reached && v.Maintain == cluster.MaintainSafe })
	if _, err := b.Delete(t.Context(), b.keys.Maintain("n1")); err != nil {
		t.Fatal(err)
	}
	b.eventually("back", func() bool { return b.state("n1").Maintain == "" && !n.Maintained() })
}

// TestTwins tells of two nodes of one name. The second one follows no revisions, until the first has ended.
func TestTwins(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	n := b.start("n1", b.with)
	b.eventually("the first", func() bool { return b.state("n1").Node != "" })
	twin := b.start("n1", b.with, func(o *agent.Options) { o.Host, o.Instance = "elsewhere", "n1-2" })
	b.eventually("the second is told", func() bool { return twin.View().Twin == "host-n1" })
	b.eventually("operators see it", func() bool { return b.twin("n1") == (cluster.Twin{Host: "elsewhere", Instance: "n1-2"}) })
	b.write(1, map[string]string{"all": "a = 1\n"})
	b.eventually("the first follows", func() bool { return n.Revision() == 1 })
	b.put(b.keys.Urgent("00000001"), urgent("00000001", "filter add", all))
	b.eventually("urgent changes are for both", func() bool { return !twin.Since("00000001").IsZero() })
	if ran, _ := twin.Runs(); len(ran) > 0 || b.state("n1").Instance != "n1-1" {
		t.Errorf("the second has run %v, and the state is that of %s", ran, b.state("n1").Instance)
	}
	n.stop()
	b.expire(b.keys.Node("n1"))
	b.eventually("the second takes over", func() bool { s := b.state("n1"); return s.Instance == "n1-2" && s.Revision == 1 })
	b.eventually("operators see one again", func() bool { return b.twin("n1") == cluster.Twin{} && twin.View().Second == "" })
}

// TestTwinRunsNothing starts a process with a name that another one has, while there is a revision to run: it runs none, not even until its state
// would be written. Those that have ended, or are this process, keep nobody.
func TestTwinRunsNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	b.write(1, map[string]string{"all": "a = 1\n"})
	n := b.start("n1", b.with)
	b.eventually("the first", func() bool { s := b.state("n1"); return s.Instance == "n1-1" && s.Revision == 1 })
	for i := range 5 {
		twin := b.start("n1", b.with, func(o *agent.Options) { o.Host, o.Instance = "elsewhere", fmt.Sprintf("n1-%d", 2+i) })
		b.eventually("the second is told", func() bool { return twin.View().Twin == "host-n1" })
		if ran, _ := twin.Runs(); len(ran) > 0 {
			t.Fatalf("try %d: the second has run %v", i, ran)
		}
		twin.stop()
	}
	n.stop()
	again := b.start("n1", b.with) // its key is still there
	b.eventually("the first again", func() bool { return again.Revision() == 1 })
	again.stop()
	next := b.start("n1", b.with, func(o *agent.Options) {
		o.Instance, o.Dead = "n1-9", func(_, instance string) bool { return instance == "n1-1" }
	})
	b.eventually("one after it", func() bool { return next.Revision() == 1 })
	if v := next.View(); v.Twin != "" {
		t.Errorf("it takes itself for another: %+v", v)
	}
}

// TestSecond has the node of a name say once that another one has its name too, and when that is over. Of two others, one is told after the other.
func TestSecond(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	var log, others testbed.Output
	start := func(host string, to *testbed.Output) *node {
		return b.start("n1", b.with, func(o *agent.Options) {
			o.Host, o.Instance, o.Log = host, host, slog.New(slog.NewTextHandler(to, nil))
		})
	}
	first := start("one", &log)
	b.eventually("the first", func() bool { return b.state("n1").Node != "" })
	second := start("two", &others)
	b.eventually("the first is told of the second", func() bool { return first.View().Second == "two" })
	third := start("three", &others)
	b.eventually("the third is told", func() bool { return third.View().Twin == "one" })
	second.stop()
	b.expire(b.keys.Twin("n1"))
	b.eventually("the first is told of the third", func() bool { return first.View().Second == "three" })
	third.stop()
	b.expire(b.keys.Twin("n1"))
	b.eventually("the first has its name alone", func() bool { return first.View().Second == "" })
	for text, want := range map[string]int{"another node has this node's name, too": 2, "host=two": 1, "host=three": 1} {
		if n := strings.Count(log.String(), text); n != want {
			t.Errorf("the first has logged %q %d times:\n%s", text, n, &log)
		}
	}
	if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); !strings.Contains(lines[len(lines)-1], "no other node has this node's name any more") {
		t.Errorf("the first does not say that it has its name alone:\n%s", &log)
	}
	if text := others.String(); strings.Contains(text, "name, too") || strings.Count(text, "another node has this node's name: this one") != 2 {
		t.Errorf("those without the name have logged\n%s", text)
	}
}

// TestTakeOver has a node that was killed and started again take its name at once.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	n := b.start("n1", b.with)
	b.eventually("the first", func() bool { return b.state("n1").Node != "" })
	n.stop()
	again := b.start("n1", b.with, func(o *agent.Options) {
		o.Instance = "n1-2"
		o.Dead = func(host, instance string) bool { return host == "host-n1" && instance == "n1-1" }
	})
	b.eventually("its state", func() bool { s := b.state("n1"); return s.Instance == "n1-2" })
	if v := again.View(); v.Twin != "" {
		t.Errorf("it takes itself for another: %+v", v)
	}
}

// TestAnswers answers questions to this node, and to no other.
func TestAnswers(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	b.start("n1", b.with)
	b.eventually("the node", func() bool { return b.state("n1").Node != "" })
	b.put(b.keys.Ask(cluster.AskWhere, "1"), cluster.Ask{ID: "1", Kind: cluster.AskWhere, Scope: cluster.Scope{Kind: cluster.ScopeNode, Name: "n2"}, Where: "x"})
	b.put(b.keys.Ask(cluster.AskWhere, "2"), cluster.Ask{ID: "2", Kind: cluster.AskWhere, Scope: all, Where: "192.0.2.1"})
	b.eventually("the answer", func() bool {
		r, err := b.Get(t.Context(), b.keys.Answer("n1", "2"))
		return err == nil && len(r.Kvs) == 1 && strings.Contains(string(r.Kvs[0].Value), "recorded: 192.0.2.1")
	})
	if r, err := b.Get(t.Context(), b.keys.Answer("n1", "1")); err != nil || len(r.Kvs) > 0 {
		t.Errorf("it answered for another: %v, error %v", r, err)
	}
}

// crowded reports much more than fits.
type crowded struct{ agent.Plane }

func (crowded) State(s *cluster.State) {
	s.Health, s.Backends, s.Stages = cluster.HealthBad, make(map[string]string), make(map[string]string)
	for i := range 300 {
		s.Interfaces = append(s.Interfaces, cluster.InterfaceState{Name: fmt.Sprintf("eth%d", i), RX: 1e6})
		s.Backends[fmt.Sprintf("192.0.2.1:80/tcp 10.0.0.%d", i)] = "down"
		s.Announced = append(s.Announced, fmt.Sprintf("192.0.2.%d", i))
		s.Problems = append(s.Problems, strings.Repeat("é", 400))
		s.Stages[fmt.Sprintf("stage%d", i)] = "ready"
	}
}

// TestBounded keeps a state within its bound, and says that more was left out.
func TestBounded(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	b.start("n1", b.with, func(o *agent.Options) { o.Plane = crowded{o.Plane} })
	b.eventually("the state", func() bool {
		s := b.state("n1")
		return s.More > 0 && s.Health == cluster.HealthBad && len(s.Problems) > 0
	})
}

// TestAlone has a node without an etcd: it goes on with what it has, and ends urgent changes by its own clock.
func TestAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t, "http://127.0.0.1:1")
	now := agent.Clock()
	held := []agent.Held{
		{Urgent: urgent("00000001", "filter add", all), Until: now + 2*time.Second},
		{Urgent: urgent("00000002", "filter add", all)},
	}
	n := b.start("n1", b.with, func(o *agent.Options) { o.Held = held })
	b.eventually("both in force", func() bool { return !n.Since("00000002").IsZero() })
	b.eventually("one by the clock's end", func() bool { return n.Since("00000001").IsZero() })
	if agent.Clock() < held[0].Until {
		t.Error("it ended too early")
	}
	if v := n.View(); v.Reached || v.Problem == "" || n.Since("00000002").IsZero() {
		t.Errorf("it is %+v", v)
	}
}
