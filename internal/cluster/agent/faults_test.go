// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/clusterbed"
)

// fleet is some nodes that each have a client of their own.
type fleet struct {
	*bed
	nodes     []*node
	documents []map[string]string
}

// newFleet starts nodes. endpoints are those of a node by its number.
func newFleet(t *testing.T, b *bed, size int, endpoints func(n int) []string) *fleet {
	t.Helper()
	f := &fleet{bed: b}
	for n := range size {
		own := dial(t, endpoints(n)...)
		f.nodes = append(f.nodes, b.start(fmt.Sprintf("n%d", n), func() (*clientv3.Client, error) { return own, nil }))
	}
	return f
}

// next writes another revision, which checks unless it is bad.
func (f *fleet) next(bad bool) int64 {
	f.Helper()
	number := int64(len(f.documents)) + 1
	text := fmt.Sprintf("a = %d\n", number)
	if bad {
		text = "bad\n"
	}
	f.documents = append(f.documents, map[string]string{"all": text})
	f.write(number, f.documents[number-1])
	return number
}

// converged waits until nodes run a revision.
func (f *fleet) converged(what string, number int64, nodes ...*node) {
	f.Helper()
	for _, n := range nodes {
		f.eventually(what+": "+n.name, func() bool { return n.Revision() == number && n.View().Revision == number })
	}
}

// end checks that nobody has run what was never checked, and that all run the last revision.
func (f *fleet) end() {
	f.Helper()
	f.converged("the end", int64(len(f.documents)), f.nodes...)
	for _, n := range f.nodes {
		f.neverUnchecked(n, f.documents...)
		f.eventually("it keeps the last one: "+n.name, func() bool {
			kept, problem := n.store.Load("edge", n.name)
			return problem == nil && kept.Revision == int64(len(f.documents))
		})
	}
}

// TestSlow delays all that nodes hear of etcd.
func TestSlow(t *testing.T) {
	t.Parallel()
	etcd := clusterbed.New(t, clusterbed.Options{})
	f := newFleet(t, newBed(t, etcd.Client().Endpoints()...), 3, func(int) []string { return etcd.Endpoints() })
	f.converged("the first", f.next(false), f.nodes...)
	etcd.Member(0).Proxy().Delay(300 * time.Millisecond)
	f.next(true)
	f.next(false)
	f.end()
}

// TestCompacted compacts etcd's history while nodes cannot hear of it.
func TestCompacted(t *testing.T) {
	t.Parallel()
	etcd := clusterbed.New(t, clusterbed.Options{})
	f := newFleet(t, newBed(t, etcd.Client().Endpoints()...), 3, func(int) []string { return etcd.Endpoints() })
	f.converged("the first", f.next(false), f.nodes...)
	f.put(f.keys.Urgent("00000001"), urgent("00000001", "filter add", all))
	for _, n := range f.nodes {
		f.eventually("the urgent change", func() bool { return !n.Since("00000001").IsZero() })
	}
	etcd.Member(0).Proxy().Cut()
	for range 5 {
		f.next(false)
	}
	r, err := f.Delete(t.Context(), f.keys.Urgent("00000001"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	etcd.Member(0).Proxy().Heal()
	f.end()
	for _, n := range f.nodes {
		f.eventually("the end of the urgent change", func() bool { return n.Since("00000001").IsZero() })
	}
}

// TestNoSpace fills etcd. Nodes hear of what is read, say that they cannot report, and do once there is room.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	etcd := clusterbed.New(t, clusterbed.Options{})
	f := newFleet(t, newBed(t, etcd.Client().Endpoints()...), 2, func(int) []string { return etcd.Endpoints() })
	f.converged("the first", f.next(false), f.nodes...)
	member := uint64(etcd.Member(0).Etcd().Server.MemberID())
	alarm := func(action etcdserverpb.AlarmRequest_AlarmAction) {
		t.Helper()
		if _, err := etcdserverpb.NewMaintenanceClient(f.ActiveConnection()).Alarm(t.Context(), &etcdserverpb.AlarmRequest{
			Action: action, MemberID: member, Alarm: etcdserverpb.AlarmType_NOSPACE,
		}); err != nil {
			t.Fatal(err)
		}
	}
	alarm(etcdserverpb.AlarmRequest_ACTIVATE)
	f.nodes[0].SetProblems("something to report")
	late := f.start("late", func() (*clientv3.Client, error) { return dial(t, etcd.Endpoints()...), nil })
	for _, n := range []*node{f.nodes[0], late} {
		f.eventually("it says so: "+n.name, func() bool { return n.View().ReportProblem != "" })
		if v := n.View(); !v.Reached {
			t.Errorf("%s takes etcd for lost: %+v", n.name, v)
		}
	}
	f.converged("it follows all the same", 1, late)
	alarm(etcdserverpb.AlarmRequest_DEACTIVATE)
	f.eventually("the report", func() bool {
		return f.nodes[0].View().ReportProblem == "" && slices.Contains(f.state("n0").Problems, "something to report") && f.state("late").Revision == 1
	})
	f.next(false)
	f.nodes = append(f.nodes, late)
	f.end()
}

// TestWrongClock has records from a machine whose clock is off by an hour, either way: nodes go by durations alone.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	n := b.start("n1", b.with)
	for i, off := range []time.Duration{time.Hour, -time.Hour} {
		id := fmt.Sprintf("%08d", i+1)
		u := urgent(id, "filter add", all)
		u.At, u.For = time.Now().Add(off), time.Minute
		b.put(b.keys.Urgent(id), u)
	}
	b.put(b.keys.Maintain("n1"), cluster.Maintain{By: "somebody", At: time.Now().Add(-time.Hour)})
	b.eventually("all of it", func() bool { return len(n.View().Urgent) == 2 && n.View().Maintain == cluster.MaintainSafe })
}

// TestEndsWithoutEtcd ends urgent changes by the node's own clock, but only those that are for a time, while etcd is away. They stay over when
// etcd comes back and still has them.
func TestEndsWithoutEtcd(t *testing.T) {
	t.Parallel()
	etcd := clusterbed.New(t, clusterbed.Options{})
	b := newBed(t, etcd.Client().Endpoints()...)
	n := b.start("n1", func() (*clientv3.Client, error) { return dial(t, etcd.Endpoints()...), nil })
	short := urgent("00000001", "filter add", all)
	short.For = 3 * time.Second
	b.put(b.keys.Urgent("00000001"), short) // its lease would end it if there were an etcd
	b.put(b.keys.Urgent("00000002"), urgent("00000002", "filter add", all))
	b.eventually("both", func() bool { return !n.Since("00000001").IsZero() && !n.Since("00000002").IsZero() })
	etcd.Member(0).Proxy().Cut()
	b.eventually("the end", func() bool { return n.Since("00000001").IsZero() })
	b.eventually("the loss of etcd", func() bool { return !n.View().Reached })
	if n.Since("00000002").IsZero() {
		t.Errorf("it is %+v", n.View())
	}
	etcd.Member(0).Proxy().Heal()
	b.eventually("it says that the change is over", func() bool {
		s := b.state("n1")
		return slices.Equal(s.UrgentOver, []string{"00000001"}) && slices.Equal(s.Urgent, []string{"00000002"})
	})
	if !n.Since("00000001").IsZero() {
		t.Error("it is in force again")
	}
}

// TestOverStays has etcd keep a change for longer than its time, as after another leader's election. It ends on time, and does not come back with
// another process of the node, nor one that cannot store it. Another change of its ID does.
func TestOverStays(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	var kept atomic.Pointer[[]agent.Over]
	var room atomic.Bool
	keep := func(o *agent.Options) {
		o.KeepOver = func(all []agent.Over) error {
			if !room.Load() {
				return errors.New("the disk is full")
			}
			kept.Store(&all)
			return nil
		}
	}
	n := b.start("n1", b.with, keep)
	short := urgent("00000001", "filter add", all)
	short.For = time.Second
	b.put(b.keys.Urgent("00000001"), short)
	over := func(n *node) func() bool {
		return func() bool {
			return slices.Equal(n.View().UrgentOver, []string{"00000001"}) && n.Since("00000001").IsZero()
		}
	}
	b.eventually("its end", over(n))
	b.eventually("what could not be stored is told", func() bool { return n.View().OverProblem != "" })
	room.Store(true)
	b.eventually("it is stored after all", func() bool { return kept.Load() != nil && n.View().OverProblem == "" })
	n.stop()
	began := b.state("n1").Instance
	again := b.start("n1", b.with, keep, func(o *agent.Options) {
		o.Instance, o.Over = "n1-2", *kept.Load()
		o.Dead = func(string, string) bool { return true }
	})
	b.eventually("the next process says so", func() bool { s := b.state("n1"); return s.Instance != began && len(s.UrgentOver) == 1 })
	if !over(again)() {
		t.Error("it is in force again")
	}
	other := urgent("00000001", "filter del", all)
	other.For = time.Hour
	b.put(b.keys.Urgent("00000001"), other)
	b.eventually("another change with its ID", func() bool { return !again.Since("00000001").IsZero() && len(again.View().UrgentOver) == 0 })
}

// TestOverBounded remembers the last changes that are over.
func TestOverBounded(t *testing.T) {
	t.Parallel()
	var over []agent.Over
	for n := range agent.MostOver + 1 {
		over, _ = agent.AddOver(over, agent.OverOf(urgent(fmt.Sprintf("%08d", n), "filter add", all)))
	}
	if len(over) != agent.MostOver || over[0].ID != "00000001" {
		t.Errorf("%d of them, the first one %s", len(over), over[0].ID)
	}
	if _, added := agent.AddOver(over, over[7]); added {
		t.Error("one is there twice")
	}
}

// TestMany has many nodes in one process start at once and get an urgent change. It takes what it takes on a busy machine; what is
// tested is that each gets it, and that the states are all there.
func TestMany(t *testing.T) {
	t.Parallel()
	const nodes = 100
	etcd := clusterbed.New(t, clusterbed.Options{})
	b := newBed(t, etcd.Client().Endpoints()...)
	var many []*node
	for i := range nodes {
		many = append(many, b.start(fmt.Sprintf("n%d", i), b.with, func(o *agent.Options) { o.Keep = nil }))
	}
	b.eventually("all states", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, err := b.Get(ctx, b.keys.Nodes(), clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && r.Count == nodes
	})
	start := time.Now()
	b.put(b.keys.Urgent("00000001"), urgent("00000001", "filter add", all))
	last := time.Duration(0)
	for _, n := range many {
		b.eventually("the change on "+n.name, func() bool { return !n.Since("00000001").IsZero() })
		last = max(last, n.Since("00000001").Sub(start))
	}
	t.Logf("in force on %d nodes after %v", nodes, last)
}
