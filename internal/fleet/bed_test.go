// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/clusterbed"
)

// bed is a fleet with nodes that only write their state.
type bed struct {
	*testing.T
	*Fleet
	out *bytes.Buffer
	say Teller

	mu    sync.Mutex
	nodes map[string]*fakeNode
}

// fakeNode runs what it is told. Its fields are guarded by bed.mu.
type fakeNode struct {
	cluster.State
	// refuse are revisions that it refuses, sicken those in which its health gets bad, slow those that it never runs.
	refuse, sicken, slow []int64
	// ran are the revisions that it has run, in their order.
	ran []int64
	// deaf nodes carry out no urgent change and answer nothing, failing ones refuse them, and unconcerned ones do not have what they are about.
	// dislikes is text that no document may have.
	deaf, failing, unconcerned bool
	// maintained is what it says in maintenance.
	maintained string
	// withdrawn is what it announced before.
	withdrawn []string
	// late says that it announces nothing after its maintenance.
	late     bool
	dislikes string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	out := new(bytes.Buffer)
	b := &bed{T: t, Fleet: New(clusterbed.New(t, clusterbed.Options{}).Client(), "test", "me@here"), out: out, say: Teller{Out: out}, nodes: make(map[string]*fakeNode)}
	now, err := b.etcd.Get(t.Context(), b.keys.Current())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { b.run(ctx, now.Header.Revision+1); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

// add adds nodes, as "lb1:lb,edge", and waits until they are there.
func (b *bed) add(nodes ...string) {
	b.Helper()
	for _, text := range nodes {
		name, roles, _ := strings.Cut(text, ":")
		n := &fakeNode{State: cluster.State{Node: name, Instance: name, Health: cluster.HealthGood, Version: "v1"}}
		if roles != "" {
			n.Roles = strings.Split(roles, ",")
		}
		b.mu.Lock()
		b.nodes[name] = n
		b.report(n)
		b.mu.Unlock()
	}
}

// with changes a node, and reports its state.
func (b *bed) with(name string, change func(*fakeNode)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b.nodes[name])
	b.report(b.nodes[name])
}

// lose takes a node away.
func (b *bed) lose(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.nodes, name)
	if _, err := b.etcd.Delete(context.Background(), b.keys.Node(name)); err != nil {
		b.Error(err)
	}
}

func (b *bed) report(n *fakeNode) {
	text, err := json.Marshal(n.State)
	if err != nil {
		b.Error(err)
		return
	}
	if _, err := b.etcd.Put(context.Background(), b.keys.Node(n.Node), string(text)); err != nil {
		b.Error(err)
	}
}

// run has the nodes do what the keys say.
func (b *bed) run(ctx context.Context, from int64) {
	for r := range b.etcd.Watch(ctx, b.keys.Prefix(), clientv3.WithPrefix(), clientv3.WithRev(from)) {
		for _, e := range r.Events {
			key := strings.TrimPrefix(string(e.Kv.Key), b.keys.Prefix())
			b.mu.Lock()
			for _, n := range b.nodes {
				switch {
				case key == "current":
					var c cluster.Current
					if err := json.Unmarshal(e.Kv.Value, &c); err != nil || c.Revision < 0 {
						continue // by hand: what runs goes on
					}
					b.change(n, c.Of(n.Node))
				case strings.HasPrefix(key, "ask/") && e.Type == clientv3.EventTypePut:
					b.answer(n, e.Kv.Value)
				case key == "maintain/"+n.Node:
					b.maintenance(n, e)
					b.report(n)
				case strings.HasPrefix(key, "urgent/"):
					b.urgent(n, strings.TrimPrefix(key, "urgent/"), e)
				}
			}
			b.mu.Unlock()
		}
	}
}

// maintenance has a node withdraw what it announces, and announce it again a moment after its maintenance.
func (b *bed) maintenance(n *fakeNode, e *clientv3.Event) {
	if e.Type != clientv3.EventTypeDelete {
		if len(n.Announced) > 0 {
			n.withdrawn = n.Announced
		}
		n.Maintain, n.Announced = n.maintained, nil
		return
	}
	n.Maintain = ""
	if n.late || len(n.withdrawn) == 0 {
		return
	}
	again := n.withdrawn
	time.AfterFunc(50*time.Millisecond, func() { b.with(n.Node, func(n *fakeNode) { n.Announced = again }) })
}

func (b *bed) change(n *fakeNode, revision int64) {
	switch {
	case revision == n.Revision, slices.Contains(n.slow, revision):
		return
	case slices.Contains(n.refuse, revision):
		n.Wanted, n.Refused = revision, "etcd:all:1:1: no stage is on"
	default:
		n.Revision, n.Wanted, n.Refused = revision, 0, ""
		n.ran = append(n.ran, revision)
		n.Health, n.Problems = cluster.HealthGood, nil
		if slices.Contains(n.sicken, revision) {
			n.Health, n.Problems = cluster.HealthBad, []string{"no backend is up"}
		}
	}
	b.report(n)
}

func (b *bed) answer(n *fakeNode, question []byte) {
	var q cluster.Ask
	if err := json.Unmarshal(question, &q); err != nil {
		b.Error(err)
	}
	if n.deaf || !q.Scope.Holds(n.Node, n.Roles) {
		return
	}
	a := cluster.Answer{Node: n.Node}
	if q.Kind == cluster.AskWhere {
		a.Lines = []string{"nothing of " + q.Where}
	}
	for scope, text := range q.Documents {
		if n.dislikes != "" && strings.Contains(text, n.dislikes) {
			a.Errors = []string{"etcd:" + scope + ":1:1: no such interface"}
		}
	}
	text, err := json.Marshal(a)
	if err != nil {
		b.Error(err)
	}
	if _, err := b.etcd.Put(context.Background(), b.keys.Answer(n.Node, q.ID), string(text)); err != nil {
		b.Error(err)
	}
}

func (b *bed) urgent(n *fakeNode, id string, e *clientv3.Event) {
	if e.Type == clientv3.EventTypeDelete {
		n.Urgent = slices.DeleteFunc(slices.Clone(n.Urgent), func(o string) bool { return o == id })
		n.UrgentUnconcerned = slices.DeleteFunc(slices.Clone(n.UrgentUnconcerned), func(o string) bool { return o == id })
		delete(n.UrgentFailed, id)
		b.report(n)
		return
	}
	var u cluster.Urgent
	if err := json.Unmarshal(e.Kv.Value, &u); err != nil {
		return // by hand
	}
	switch {
	case n.deaf || !u.Scope.Holds(n.Node, n.Roles):
		return
	case n.unconcerned:
		n.UrgentUnconcerned = append(n.UrgentUnconcerned, id)
	case n.failing:
		n.UrgentFailed = map[string]string{id: "no set bad"}
	default:
		n.Urgent = append(n.Urgent, id)
	}
	b.report(n)
}

// until waits until a node has run a revision last.
func (b *bed) until(name string, revision int64) {
	b.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		b.mu.Lock()
		now := b.nodes[name].Revision
		b.mu.Unlock()
		if now == revision {
			return
		}
	}
	b.Fatalf("%s does not run revision %d: %s\n%s", name, revision, b.ran(name), b.out)
}

// ran returns the revisions that a node has run.
func (b *bed) ran(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint(b.nodes[name].ran)
}

// quick are steps that take little time.
func quick() Steps {
	return Steps{Canary: 1, Step: "50%", Wait: 200 * time.Millisecond, Within: time.Second}
}

// doc is a document for all nodes with a rule of that name.
func doc(rule string) Change {
	return Change{Scope: cluster.Scope{Kind: cluster.ScopeAll}, File: "all.toml", Text: "[[filter.rule]]\nname = \"" + rule + "\"\naction = \"drop\"\nexpression = \"icmp\"\n"}
}

func (b *bed) apply(changes ...Change) error {
	b.out.Reset()
	return b.Apply(b.Context(), Apply{Changes: changes, Steps: quick()}, b.say)
}

func (b *bed) current() cluster.Current {
	b.Helper()
	c, err := b.Current(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return c
}
