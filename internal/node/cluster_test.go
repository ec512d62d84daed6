// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"culvert/internal/cluster"
	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/clusterbed"
	"culvert/internal/cluster/lastgood"
	"culvert/internal/cluster/sets"
	"culvert/internal/config"
	"culvert/internal/filter/filterstage"
	"culvert/internal/testbed"
)

// newMember joins a cluster whose etcd is at an address, with a file that has the table [cluster] and what follows.
func newMember(t *testing.T, endpoint, rest string) (m *member, path string) {
	t.Helper()
	testbed.InNamespace(t)
	dir := t.TempDir()
	path = filepath.Join(dir, "c.toml")
	text := rest + "[cluster]\nname = \"edge\"\nnode = \"n1\"\nroles = [\"lb\"]\nstate_dir = \"state\"\nendpoints = [\"" + endpoint + "\"]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := joinCluster(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	return m, path
}

// TestSetOfDocument has a node fetch the set that a document names, and read the document with it. The set stays as long as it may be needed.
func TestSetOfDocument(t *testing.T) {
	server := clusterbed.New(t, clusterbed.Options{})
	m, path := newMember(t, server.Endpoints()[0], "interfaces = [\"lo\"]\n")
	s, err := sets.Make("bad", "prefix", []string{"192.0.2.0/24", "198.51.100.7"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := server.Client()
	if _, _, err := sets.Store(t.Context(), client, cluster.KeysOf("edge"), s); err != nil {
		t.Fatal(err)
	}
	o := m.options(slog.New(slog.DiscardHandler))
	record := cluster.Revision{Number: 1, Sets: map[string]string{"role/lb:bad": s.Hash}}
	if err := o.Fetch(t.Context(), client, record); err != nil {
		t.Fatal(err)
	}
	set := &lastgood.Set{Cluster: "edge", Node: "n1", Revision: 1, Sets: record.SetsOf("n1", []string{"lb"}), Documents: []lastgood.Document{
		{Scope: "role/lb", Text: []byte("[[filter.set]]\nname = \"bad\"\nfile = \"" + s.Hash + "\"\n")},
	}}
	f, err := m.read(path, set)
	if err != nil {
		t.Fatal(err)
	}
	table, _ := f.Node.Tables[filterstage.Stage{}.Name()].(*filterstage.Table)
	if table == nil || len(table.Sets) != 1 || table.Sets[0].File != filepath.Join(m.table.SetsDir(), s.Hash) {
		t.Fatalf("the table is %+v", table)
	}
	if text, err := os.ReadFile(table.Sets[0].File); err != nil || string(text) != "192.0.2.0/24\n198.51.100.7\n" {
		t.Errorf("the set is %q, error %v", text, err)
	}
	if err := m.store.Save(set); err != nil {
		t.Fatal(err)
	}
	m.running = func() *lastgood.Set { return &lastgood.Set{Sets: []string{"of what runs"}} }
	if kept := m.keptSets(); len(kept) != 2 || kept[0] != s.Hash || kept[1] != "of what runs" {
		t.Errorf("kept %q", kept)
	}
}

// TestStoppedWhileWaiting stops a node that waits for its first documents: that is no failure.
func TestStoppedWhileWaiting(t *testing.T) {
	m, path := newMember(t, "http://127.0.0.1:1", "interfaces = [\"lo\"]\nmode = \"none\"\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.await(ctx, path, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}

// TestClusterChangedAtOnce has two callers publish how the node stands with its cluster. The first one is slow: what it has seen is not published
// behind what the second one has seen.
func TestClusterChangedAtOnce(t *testing.T) {
	var calls atomic.Int64
	slow, goOn, second := make(chan struct{}), make(chan struct{}), make(chan struct{})
	m := &member{table: new(config.Cluster), view: func() agent.View {
		n := calls.Add(1)
		if n == 1 {
			close(slow)
			<-goOn
		}
		return agent.View{Revision: n}
	}}
	p := &process{cluster: m, states: new(stageStates)}
	var work sync.WaitGroup
	work.Go(p.clusterChanged)
	<-slow
	work.Go(func() { p.clusterChanged(); close(second) })
	select {
	case <-second: // it has not waited
	case <-time.After(100 * time.Millisecond):
	}
	close(goOn)
	work.Wait()
	if n := p.states.inForce.Cluster.Revision; n != 2 {
		t.Errorf("what the call number %d has seen is published, want that of the last one", n)
	}
}
