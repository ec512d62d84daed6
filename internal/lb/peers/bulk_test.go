// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/peerstate"
	"culvert/internal/testbed"
)

// bulk returns the files of a machine.
func bulk(a *testbed.Authority, m *machine, timeout time.Duration) *Bulk {
	cert, key := a.Issue(m.at.Addr())
	return &Bulk{Cert: cert, Key: key, CA: a.CA, Timeout: timeout}
}

// TestBulk starts a machine whose peers have flows. It is ready once it has them all, those too that a peer knows from others alone.
func TestBulk(t *testing.T) {
	all := tier(t, 3)
	a, b, late := all[0], all[1], all[2]
	ca := testbed.NewAuthority(t)
	const flows = 1500
	for n := range flows {
		a.put(flow(n), 1, lbplane.FlowOpen, 60*time.Second)
	}
	for _, m := range all[:2] {
		o := m.options(all)
		o.Flows, o.Bulk = 3000, bulk(ca, m, 100*time.Millisecond) // one does not run
		m.start(o)
	}
	b.wait("the flows are told", func() bool { return b.s.State().Held == flows })
	a.end()
	o := late.options([]*machine{b, late})
	o.Flows, o.Bulk = 3000, bulk(ca, late, time.Minute)
	late.start(o)
	late.wait("it is ready", late.s.Ready)
	if s := late.s.State(); s.Bulk != peerstate.BulkDone || s.BulkError != "" || s.Held != flows {
		t.Errorf("ready with %+v", s)
	}
	for n := range flows {
		if got, _, _ := late.find(flow(n)); got != 1 {
			t.Fatalf("flow %d has backend %d", n, got)
		}
	}
}

// TestBulkIncomplete starts machines whose peer does not answer, in several ways. They are ready once time is up, and say why flows are
// missing.
func TestBulkIncomplete(t *testing.T) {
	all := tier(t, 2)
	a, peer := all[0], all[1]
	ca, other := testbed.NewAuthority(t), testbed.NewAuthority(t)
	expect := func(why string) {
		t.Helper()
		o := a.options(all)
		o.Bulk = bulk(ca, a, 300*time.Millisecond)
		begin := time.Now()
		a.start(o)
		if a.s.Ready() {
			t.Error("it is ready at once")
		}
		a.wait("it is ready", a.s.Ready)
		if took := time.Since(begin); took < o.Bulk.Timeout {
			t.Errorf("time was up after %v", took)
		}
		if s := a.s.State(); s.Bulk != peerstate.BulkIncomplete || !strings.Contains(s.BulkError, why) {
			t.Errorf("%q, want %q", s.BulkError, why)
		}
		if all := a.s.State().Problems(); len(all) == 0 {
			t.Error("that is no problem")
		}
		a.end()
	}
	expect("connection refused")

	t.Log("a peer that says nothing")
	listening := make(chan net.Listener, 1)
	go func() {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", peer.at.String())
		if err != nil {
			t.Error(err)
		}
		listening <- l
	}()
	l := <-listening
	expect("no answer")
	l.Close()

	t.Log("a peer with certificates of somebody else")
	o := peer.options(all)
	o.Bulk = bulk(other, peer, time.Second)
	peer.start(o)
	expect("certificate")
	peer.end()

	t.Log("a peer with another key")
	o.Bulk = bulk(ca, peer, time.Second)
	o.Key[0]++
	peer.start(o)
	expect("EOF") // it closes the connection
	peer.wait("it says so", func() bool {
		return strings.Contains(peer.peer(a.at).Wrong, "another key") || peer.datagrams(a.at, peerstate.WrongMAC) > 0
	})
}
