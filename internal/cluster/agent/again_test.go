// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/clusterbed"
	"culvert/internal/cluster/lastgood"
	"culvert/internal/testbed"
)

// ended counts how often a node is asked to have no urgent change in force.
type ended struct {
	agent.Plane
	asked atomic.Int32
}

func (e *ended) Urgent(_ context.Context, changes []agent.Held) map[string]error {
	if len(changes) == 0 {
		e.asked.Add(1)
	}
	return nil
}

// TestEndedWhileDown has the time of an urgent change end while no process of the node runs: it is undone at the start, without etcd.
func TestEndedWhileDown(t *testing.T) {
	t.Parallel()
	b := newBed(t, "http://127.0.0.1:1")
	e := new(ended)
	b.start("n1", b.with, func(o *agent.Options) {
		e.Plane, o.Plane = o.Plane, e
		o.Held = []agent.Held{{Urgent: urgent("00000001", "filter add", all), Until: 1}}
	})
	b.eventually("it is undone", func() bool { return e.asked.Load() > 0 })
}

// bare has nothing that urgent changes are about, until it has.
type bare struct {
	agent.Plane
	has atomic.Bool
}

func (p *bare) Urgent(ctx context.Context, changes []agent.Held) map[string]error {
	if p.has.Load() {
		return p.Plane.Urgent(ctx, changes)
	}
	failed := make(map[string]error)
	for _, h := range changes {
		failed[h.ID] = agent.ErrUnconcerned
	}
	return failed
}

// TestUnconcerned has an urgent change about what the node does not have: that is no failure, and it comes into force once the node has it.
func TestUnconcerned(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	p := new(bare)
	b.start("n1", b.with, func(o *agent.Options) { p.Plane, o.Plane = o.Plane, p })
	b.put(b.keys.Urgent("00000001"), urgent("00000001", "lb drain", all))
	b.eventually("it is not concerned", func() bool {
		s := b.state("n1")
		return slices.Equal(s.UrgentUnconcerned, []string{"00000001"}) && len(s.Urgent)+len(s.UrgentFailed) == 0
	})
	p.has.Store(true)
	b.eventually("it is in force", func() bool { s := b.state("n1"); return len(s.Urgent) == 1 && len(s.UrgentUnconcerned) == 0 })
}

// busy reports other rates each time.
type busy struct {
	agent.Plane
	asked atomic.Uint64
}

func (p *busy) State(s *cluster.State) {
	s.Interfaces = []cluster.InterfaceState{{Name: "eth0", RX: p.asked.Add(1)}}
}

// wide reports more than fits.
type wide struct{ agent.Plane }

func (wide) State(s *cluster.State) {
	s.Sources, s.Backends = make(map[string]string), make(map[string]string)
	for n := range 100 {
		name := fmt.Sprintf("source %d of VIP 203.0.113.80:80/tcp", n)
		s.Sources[name], s.Backends[name] = "failing: "+strings.Repeat("x", 400), "down"
		s.Problems = append(s.Problems, strings.Repeat("y", 400))
	}
}

// TestWide has a state with more of all that is not the node's own than fits. It is written all the same, and says that there is more.
func TestWide(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	b.start("n1", b.with, func(o *agent.Options) { o.Plane = wide{o.Plane} })
	b.eventually("its state", func() bool { s := b.state("n1"); return s.Node == "n1" && s.More > 0 && len(s.Sources) > 0 })
}

// TestStaysUnwritten fills etcd. A node whose rates alone change goes on saying that its state is not written.
func TestStaysUnwritten(t *testing.T) {
	t.Parallel()
	server := clusterbed.New(t, clusterbed.Options{})
	b := newBed(t, server.Endpoints()...)
	p := new(busy)
	n := b.start("n1", b.with, func(o *agent.Options) { p.Plane, o.Plane = o.Plane, p })
	b.eventually("its state", func() bool { return b.state("n1").Node != "" })
	if _, err := etcdserverpb.NewMaintenanceClient(b.ActiveConnection()).Alarm(t.Context(), &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: uint64(server.Member(0).Etcd().Server.MemberID()), Alarm: etcdserverpb.AlarmType_NOSPACE,
	}); err != nil {
		t.Fatal(err)
	}
	b.eventually("it says so", func() bool { return n.View().ReportProblem != "" })
	const more = 4 // a try a second, and the first one with other rates and nothing else
	for last := p.asked.Load() + more; p.asked.Load() < last; {
		if n.View().ReportProblem == "" {
			t.Fatal("it takes its state for written")
		}
	}
}

// TestNamesByHand has keys of urgent changes whose names are no IDs, as long as they like. They are told, and the state stays in its bounds.
func TestNamesByHand(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	n := b.start("n1", b.with)
	for _, c := range "abc" {
		b.put(b.keys.Urgent(strings.Repeat(string(c), 3000)), urgent("", "filter add", all))
	}
	// The order is that of numbers.
	b.put(b.keys.Urgent("100000000"), urgent("", "filter add", all))
	b.put(b.keys.Urgent("99999999"), urgent("", "filter add", all))
	b.eventually("the state", func() bool {
		s := b.state("n1")
		return len(s.UrgentFailed) == 3 && slices.Equal(s.Urgent, []string{"99999999", "100000000"})
	})
	sessions := n.View().Sessions
	if _, err := b.Delete(t.Context(), b.keys.Urgents(), clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	b.eventually("none is left", func() bool { s := b.state("n1"); return len(s.UrgentFailed)+len(s.Urgent) == 0 })
	if now := n.View().Sessions; now != sessions {
		t.Errorf("the node has begun anew %d times", now-sessions)
	}
}

// lose takes all keys and the lease of a node away, as a loss of etcd's data does.
func (b *bed) lose(name string) {
	b.Helper()
	b.eventually("its state", func() bool { return b.state(name).Node != "" })
	r, err := b.Get(b.Context(), b.keys.Node(name))
	if err == nil {
		_, err = b.Delete(b.Context(), b.keys.Prefix(), clientv3.WithPrefix())
	}
	if err == nil {
		_, err = b.Revoke(b.Context(), clientv3.LeaseID(r.Kvs[0].Lease))
	}
	if err != nil {
		b.Fatal(err)
	}
}

// TestNumbersAgain has an etcd that has lost its data count revisions from 1 again: a node that runs another revision 1 does not take it
// for the new one.
func TestNumbersAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	n := b.start("n1", b.with)
	first, second, third := map[string]string{"all": "a = 1\n"}, map[string]string{"all": "a = 2\n", "role/lb": "b = 2\n"}, map[string]string{"all": "bad\n"}
	b.write(1, first)
	b.eventually("revision 1", func() bool { return n.View().Revision == 1 })
	for _, documents := range []map[string]string{second, third} {
		sessions := n.View().Sessions
		b.lose("n1")
		b.eventually("another session", func() bool { return n.View().Sessions > sessions })
		b.write(1, documents)
		if documents["all"] == "bad\n" {
			b.eventually("the refusal", func() bool {
				s := b.state("n1")
				return s.Refused == errUnchecked.Error() && s.Wanted == 1 && s.Revision == 1
			})
			continue
		}
		b.eventually("the other revision 1", func() bool { ran, _ := n.Runs(); return len(ran) == 2 && ran[1].Revision == 1 })
	}
	b.neverUnchecked(n, first, second, third)
}

// TestOtherRoles starts a node that has got a role since it ran the revision: it runs the document of that role, too.
func TestOtherRoles(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	b.write(1, map[string]string{"all": "a = 1\n", "role/lb": "b = 1\n"})
	n := b.start("n1", b.with, func(o *agent.Options) {
		o.Running = &lastgood.Set{Cluster: "edge", Node: "n1", Revision: 1, Documents: []lastgood.Document{{Scope: "all", Text: []byte("a = 1\n")}}}
	})
	b.eventually("both documents", func() bool { set, _ := n.store.Load("edge", "n1"); return set != nil && len(set.Documents) == 2 })
	// One that has all of them does not run them again.
	same := b.start("n2", b.with, func(o *agent.Options) {
		o.Running = &lastgood.Set{Cluster: "edge", Node: "n2", Revision: 1, Documents: []lastgood.Document{
			{Scope: "all", Text: []byte("a = 1\n")}, {Scope: "role/lb", Text: []byte("b = 1\n")},
		}}
	})
	b.put(b.keys.Urgent("00000001"), urgent("", "filter add", all))
	b.eventually("it follows", func() bool { return !same.Since("00000001").IsZero() && b.state("n2").Revision == 1 })
	if ran, _ := same.Runs(); len(ran) > 0 {
		t.Errorf("it has run %v", ran)
	}
}

// asked notes the kinds of questions.
type asked struct {
	agent.Plane
	kinds chan string
}

func (a *asked) Answer(_ context.Context, q cluster.Ask) cluster.Answer {
	a.kinds <- q.Kind
	return cluster.Answer{}
}

// TestKindByKey has somebody who may only ask where something is ask to check documents: the key decides.
func TestKindByKey(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	p := &asked{kinds: make(chan string, 1)}
	b.start("n1", b.with, func(o *agent.Options) { p.Plane, o.Plane = o.Plane, p })
	b.eventually("its state", func() bool { return b.state("n1").Node != "" })
	b.put(b.keys.Ask(cluster.AskWhere, "1"), cluster.Ask{ID: "1", Kind: cluster.AskCheck, Scope: all})
	if kind := <-p.kinds; kind != cluster.AskWhere {
		t.Errorf("it is taken for one of kind %s", kind)
	}
}

// TestToldOnce has etcd fail for two reasons in turn: each is logged once until it answers.
func TestToldOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t, clusterbed.New(t, clusterbed.Options{}).Endpoints()...)
	var log testbed.Output
	var tries atomic.Int32
	b.start("n1", func() (*clientv3.Client, error) {
		switch n := tries.Add(1); {
		case n > 6:
			return b.Client, nil
		case n%2 == 0:
			return nil, errors.New("the one reason")
		}
		return nil, errors.New("the other reason")
	}, func(o *agent.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	b.eventually("it reports", func() bool { return b.state("n1").Node != "" })
	if n := strings.Count(log.String(), "etcd cannot be reached"); n != 2 {
		t.Errorf("%d lines say that etcd cannot be reached", n)
	}
}
