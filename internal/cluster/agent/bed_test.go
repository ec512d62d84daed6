// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/etcd"
	"culvert/internal/cluster/lastgood"
	"culvert/internal/cluster/recorder"
)

// bed is a cluster of simulated nodes.
type bed struct {
	testing.TB
	*clientv3.Client
	keys cluster.Keys
}

func newBed(t testing.TB, endpoints ...string) *bed {
	t.Helper()
	return &bed{TB: t, Client: dial(t, endpoints...), keys: cluster.KeysOf("edge")}
}

func dial(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	c, err := etcd.Dial(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (b *bed) put(key string, value any, o ...clientv3.OpOption) {
	b.Helper()
	text, ok := value.(string)
	if !ok {
		j, err := json.Marshal(value)
		if err != nil {
			b.Fatal(err)
		}
		text = string(j)
	}
	// A write may meet an election.
	b.eventually("writing "+key, func() bool {
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		_, err := b.Put(ctx, key, text, o...)
		return err == nil
	})
}

// write writes a revision and has the nodes run it.
func (b *bed) write(number int64, documents map[string]string) {
	b.Helper()
	r := cluster.Revision{Number: number, Documents: make(map[string]string)}
	for scope, text := range documents {
		s, err := cluster.ParseScope(scope)
		if err != nil {
			b.Fatal(err)
		}
		sum := sha256.Sum256([]byte(text))
		r.Documents[scope] = hex.EncodeToString(sum[:])
		b.put(b.keys.Document(number, s), text)
	}
	b.put(b.keys.Revision(number), r)
	b.put(b.keys.Current(), cluster.Current{Revision: number})
}

// eventually waits until a condition is true. It only fails when it stays false for very long.
func (b *bed) eventually(what string, condition func() bool) {
	b.Helper()
	for end := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("%s: not after two minutes", what)
		}
	}
}

// node is a simulated node.
type node struct {
	agent *agent.Agent
	*recorder.Recorder
	store lastgood.Store
	name  string
	stop  context.CancelFunc
	ended chan struct{}
}

// errUnchecked is why simulated nodes refuse documents.
var errUnchecked = errors.New("etcd:all:1:1: bad is no configuration")

// check is what simulated nodes check: documents without the word bad.
func check(s *lastgood.Set) error {
	for _, d := range s.Documents {
		if strings.Contains(string(d.Text), "bad") {
			return errUnchecked
		}
	}
	return nil
}

// start starts a node, with an etcd of its own choice.
func (b *bed) start(name string, client func() (*clientv3.Client, error), change ...func(*agent.Options)) *node {
	b.Helper()
	n := &node{Recorder: &recorder.Recorder{Check: check}, store: lastgood.In(b.TempDir()), name: name, ended: make(chan struct{})}
	o := agent.Options{
		Cluster: "edge", Node: name, Roles: []string{"lb"}, Host: "host-" + name, Version: "test", Instance: name + "-1",
		Connect: client, Plane: n.Recorder, Keep: n.store.Save, Log: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&o)
	}
	n.agent = agent.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = func() { cancel(); <-n.ended }
	go func() { defer close(n.ended); n.agent.Run(ctx) }()
	b.Cleanup(n.stop)
	return n
}

// with shares the bed's own client.
func (b *bed) with() (*clientv3.Client, error) { return b.Client, nil }

// state reads the state of a node, one without a name if there is none.
func (b *bed) state(name string) *cluster.State {
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
	defer cancel()
	r, err := b.Get(ctx, b.keys.Node(name))
	s := new(cluster.State)
	if err != nil || len(r.Kvs) == 0 {
		return s
	}
	if err := json.Unmarshal(r.Kvs[0].Value, s); err != nil {
		b.Errorf("state of %s: %v", name, err)
	}
	if len(r.Kvs[0].Value) > cluster.MostState {
		b.Errorf("the state of %s has %d bytes", name, len(r.Kvs[0].Value))
	}
	return s
}

// twin reads who says to have the name of a node, too.
func (b *bed) twin(name string) (t cluster.Twin) {
	r, err := b.Get(b.Context(), b.keys.Twin(name))
	if err == nil && len(r.Kvs) == 1 && b.keys.TwinOf(string(r.Kvs[0].Key)) == name {
		err = json.Unmarshal(r.Kvs[0].Value, &t)
	}
	if err != nil {
		b.Errorf("reading the twin of %s: %v", name, err)
	}
	return t
}

// neverUnchecked fails if a node has run what does not pass check.
func (b *bed) neverUnchecked(n *node, documents ...map[string]string) {
	b.Helper()
	known := map[string]bool{"": true}
	for i, d := range documents {
		set := &lastgood.Set{Cluster: "edge", Node: n.name, Revision: int64(i) + 1}
		for _, scope := range []string{"all", "role/lb", "node/" + n.name} {
			if text, ok := d[scope]; ok {
				set.Documents = append(set.Documents, lastgood.Document{Scope: scope, Text: []byte(text)})
			}
		}
		if check(set) == nil {
			known[set.Digest()] = true
		}
	}
	ran, _ := n.Runs()
	for _, r := range ran {
		if !known[r.Digest] {
			b.Errorf("node %s has run revision %d with digest %s, which was never checked", n.name, r.Revision, r.Digest)
		}
	}
}

func (n *node) View() agent.View { return n.agent.View() }

// expire ends the lease of a node's key, as its time does.
func (b *bed) expire(key string) {
	b.Helper()
	r, err := b.Get(b.Context(), key)
	if err == nil && len(r.Kvs) == 1 {
		_, err = b.Revoke(b.Context(), clientv3.LeaseID(r.Kvs[0].Lease))
	}
	if err != nil {
		b.Fatal(err)
	}
}
