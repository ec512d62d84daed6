// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"testing"
	"time"

	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/peerstate"
)

// TestTell has a machine tell the flows whose backend is not the ring's, and no others.
func TestTell(t *testing.T) {
	all := tier(t, 3)
	a := all[0]
	a.put(flow(0), 1, lbplane.FlowOpen, 60*time.Second) // the second backend is in no ring
	a.put(flow(1), 0, lbplane.FlowOpen, 60*time.Second)
	for _, m := range all {
		m.start(m.options(all))
	}
	for _, m := range all[1:] {
		m.wait("the flow is told", func() bool { n, _, _ := m.find(flow(0)); return n == 1 })
		if _, state, idle := m.find(flow(0)); state != lbplane.FlowOpen || idle < 60*time.Second || idle > 70*time.Second {
			t.Errorf("told in state %d, idle for %v", state, idle)
		}
	}

	t.Log("a change of rings")
	for _, m := range all {
		m.state.VIPs[0].Backends[0].Weight, m.state.VIPs[0].Backends[1].Weight = 0, 1
		m.write()
		m.s.Follow(m.state)
	}
	for _, m := range all[1:] {
		m.wait("the other flow is told", func() bool { n, _, _ := m.find(flow(1)); return n == 0 })
	}

	t.Log("a flow that is as the ring says now stays, and nobody tells it")
	b := all[1]
	b.wait("it is nobody's own", func() bool { s := b.s.State(); return s.Held == 2 && s.Deviating == 0 })

	t.Log("a flow closes")
	a.put(flow(1), 0, lbplane.FlowClosing, 20*time.Second)
	b.wait("the state is told", func() bool { _, state, _ := b.find(flow(1)); return state == lbplane.FlowClosing })

	t.Log("packets come to another machine: the flow is its own then")
	b.put(flow(1), 0, lbplane.FlowOpen, 0)
	b.wait("it is told by that one", func() bool { return b.s.State().Deviating == 1 })
	a.wait("the first one takes that over", func() bool { _, state, _ := a.find(flow(1)); return state == lbplane.FlowOpen })
	for _, m := range all {
		for _, other := range all {
			if p := m.peer(other.at); m != other && (!p.Up || p.OtherSeed || p.Wrong != "") {
				t.Errorf("%s sees %+v", m.at, p)
			}
		}
	}
}

// TestOwn wants a flow of a machine's own to stay as it is, whatever others tell.
func TestOwn(t *testing.T) {
	all := tier(t, 2)
	a, b := all[0], all[1]
	a.put(flow(0), 1, lbplane.FlowOpen, 0)
	b.put(flow(0), 0, lbplane.FlowOpen, 100*time.Second)
	a.put(flow(1), 1, lbplane.FlowOpen, 60*time.Second)
	b.put(flow(1), 1, lbplane.FlowOpen, 0)
	for _, m := range all {
		m.start(m.options(all))
	}
	b.wait("the flows are told", func() bool {
		f := b.s.State().Flows
		return f[peerstate.Conflict] > 0 && f[peerstate.Known] > 0
	})
	if n, _, idle := b.find(flow(0)); n != 0 || idle < 100*time.Second {
		t.Errorf("backend %d, idle for %v", n, idle)
	}
	if n, _, idle := b.find(flow(1)); n != 1 || idle > 10*time.Second {
		t.Errorf("backend %d, idle for %v", n, idle)
	}
}

// TestResults wants each flow that is not taken to be counted with the reason.
func TestResults(t *testing.T) {
	all := tier(t, 2)
	a, b := all[0], all[1]
	o := b.options(all)
	o.Flows = 2
	a.start(a.options(all))
	b.start(o)
	b.wait("the peer is up", func() bool { return b.peer(a.at).Up && a.peer(b.at).Up })
	told := func(change func(*toldFlow)) toldFlow {
		f := toldFlow{service, a.state.VIPs[0].Backends[1].Addr, flow(9), service.Port, lbplane.FlowOpen, 0}
		change(&f)
		return f
	}
	for _, c := range []struct {
		want string
		flow toldFlow
	}{
		{peerstate.NoVIP, told(func(f *toldFlow) { f.service.Port, f.port = 81, 81 })},
		{peerstate.NoBackend, told(func(f *toldFlow) { f.backend = f.client.Addr() })},
		{peerstate.Expired, told(func(f *toldFlow) { f.idle = time.Hour })},
		{peerstate.Installed, told(func(f *toldFlow) { f.idle = 60 * time.Second })},
		{peerstate.Known, told(func(f *toldFlow) { f.idle = 90 * time.Second })},
		{peerstate.Refreshed, told(func(*toldFlow) {})},
		{peerstate.Replaced, told(func(f *toldFlow) { f.backend = a.state.VIPs[0].Backends[0].Addr })},
		{peerstate.Installed, told(func(f *toldFlow) { f.client = flow(10) })},
		{peerstate.OverLimit, told(func(f *toldFlow) { f.client = flow(11) })},
	} {
		before := b.s.State().Flows
		a.s.mu.Lock()
		a.s.tell([]toldFlow{c.flow}, time.Now())
		a.s.mu.Unlock()
		b.wait(c.want, func() bool { return b.s.State().Flows[c.want] == before[c.want]+1 })
	}
	if p := b.s.State().Problems(); len(p) != 1 {
		t.Errorf("problems %+v, want one about the limit", p)
	}
}

// TestUntold has more flows than may be told. Those that are not are counted.
func TestUntold(t *testing.T) {
	all := tier(t, 2)
	a, b := all[0], all[1]
	for n := range 5 {
		a.put(flow(n), 1, lbplane.FlowOpen, 0)
	}
	o := a.options(all)
	o.Flows = 3
	a.start(o)
	b.start(b.options(all))
	b.wait("flows are told", func() bool { return b.s.State().Held == 3 })
	a.wait("the others are counted", func() bool { s := a.s.State(); return s.Deviating == 5 && s.Untold == 2 })
}

// TestResend starts a machine when the one whose flows these are is gone. Another one tells it all that it has heard, although the rate
// does not allow that within one look at the flow table.
func TestResend(t *testing.T) {
	all := tier(t, 3)
	a, b, late := all[0], all[1], all[2]
	const flows = 400
	for n := range flows {
		a.put(flow(n), 1, lbplane.FlowOpen, 60*time.Second)
	}
	a.start(a.options(all))
	o := b.options(all)
	o.Rate = 50 // 105 at once
	b.start(o)
	b.wait("the flows are told", func() bool { return b.s.State().Held == flows })
	a.end()
	late.start(late.options(all))
	late.wait("the flows are told again", func() bool { return late.s.State().Held == flows })
}

// TestRings wants machines to say that their seeds and their rings differ.
func TestRings(t *testing.T) {
	all := tier(t, 2)
	a, b := all[0], all[1]
	b.state.VIPs[0].Backends[1].Weight = 1
	a.start(a.options(all))
	b.start(b.options(all))
	a.wait("the peer is up", func() bool { return a.peer(b.at).Up })
	a.s.mu.Lock()
	p := a.s.peers[b.at]
	differ := !p.ringsDiffer.IsZero()
	p.ringsDiffer = p.ringsDiffer.Add(-differWithin)
	a.s.mu.Unlock()
	if !differ {
		t.Error("the rings differ, and nobody sees it")
	}
	a.wait("the rings differ", func() bool { return a.peer(b.at).OtherRings })
	a.s.mu.Lock()
	a.s.names.sums.seed[0]++
	a.s.mu.Unlock()
	a.wait("the seeds differ", func() bool { return a.peer(b.at).OtherSeed })
	if all := a.s.State().Problems(); len(all) == 0 || !all[0].Severe {
		t.Errorf("problems %+v", all)
	}
}
