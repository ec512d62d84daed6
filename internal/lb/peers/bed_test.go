// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/peerstate"
	"culvert/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }

const (
	vipNumber = 3
	ringSize  = 17
)

var service = lb.Service{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Protocol: lb.TCP}

// machine is a load balancer with two backends of one VIP. Its ring has the first one alone.
type machine struct {
	t     *testing.T
	inst  *datapath.Instance
	plane *lbplane.Plane
	x     *lbplane.Exchange // of the test
	state lb.State
	at    netip.AddrPort
	s     *Service
}

// ports are given to the tests, which may run at the same time.
var ports atomic.Uint32

func port() uint16 { return uint16(20000 + ports.Add(1)) }

// tier makes load balancers. Their sockets are on the loopback device of the process's network namespace, their data planes in one of
// the test's thread.
func tier(t *testing.T, n int) []*machine {
	t.Helper()
	testbed.InNamespace(t)
	p := port()
	all := make([]*machine, n)
	for i := range all {
		name := fmt.Sprintf("lb%d", i+1)
		testbed.AddVeth(t, name, name+"p")
		// Numbers and IDs differ from machine to machine.
		m := &machine{t: t, at: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}), p)}
		m.state.VIPs = []lb.VIP{{
			Service: service, Hash: lb.HashFlow, OnFailure: lb.FailKeep, Number: vipNumber + uint32(i),
			Backends: []lb.Backend{
				{Addr: netip.MustParseAddr("10.0.0.11"), Weight: 1, ID: lbplane.NewBackendID(uint32(2*i+1), 1)},
				{Addr: netip.MustParseAddr("10.0.0.12"), ID: lbplane.NewBackendID(uint32(2*i+2), 1)},
			},
		}}
		var err error
		m.inst, err = datapath.Attach(datapath.Options{
			Name: name, Interfaces: []string{name}, Temporary: true, Parts: []datapath.Part{lbplane.NewPart(lbplane.Options{RingSize: ringSize, Flows: 4000})},
		})
		m.must(err)
		t.Cleanup(m.inst.Close)
		m.plane, err = lbplane.View(m.inst)
		m.must(err)
		m.write()
		m.x = lbplane.NewExchange(m.inst)
		t.Cleanup(m.x.Close)
		all[i] = m
	}
	return all
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// write writes VIP, backends and ring: all positions have the first backend with a weight.
func (m *machine) write() {
	m.t.Helper()
	v := m.state.VIPs[0]
	ring := make([]lbplane.BackendID, ringSize)
	for _, b := range v.Backends {
		m.must(m.plane.SetBackend(lbplane.Backend{ID: b.ID, VIP: v.Number, Addr: b.Addr, Used: true, Hop: lbplane.Hop{Port: 1, MTU: 1500}}))
		for n := range ring {
			if ring[n] == 0 && b.Weight > 0 {
				ring[n] = b.ID
			}
		}
	}
	m.must(m.plane.SetRing(v.Number, ring))
	m.must(m.plane.SetVIP(v.Service.Key(), lbplane.VIP{Number: v.Number}))
}

// options are those of a machine in a tier.
func (m *machine) options(all []*machine) Options {
	o := Options{Listen: m.at, Key: sha256.Sum256([]byte("test")), Rate: DefaultRate, Log: slog.New(slog.NewTextHandler(m.t.Output(), nil))}
	for _, other := range all {
		if other != m {
			o.Peers = append(o.Peers, other.at)
		}
	}
	return o
}

// start starts the exchange of a machine until the test ends.
func (m *machine) start(o Options) {
	m.t.Helper()
	opened := make(chan error, 1)
	var sockets *Sockets
	go func() { // on a thread of the process's namespace
		var err error
		sockets, err = Open(&o, nil)
		opened <- err
	}()
	m.must(<-opened)
	s := Start(o, sockets, false)
	m.s = s
	s.Attach(m.inst)
	s.Follow(m.state)
	m.t.Cleanup(func() {
		if m.s == s {
			m.end()
		}
	})
}

func (m *machine) end() {
	_ = m.s.Stop().Close()
	m.s = nil
}

// flow is a flow of a test.
func flow(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(n >> 8)}), uint16(1000+n&0xff))
}

func (m *machine) key(client netip.AddrPort) lbplane.FlowKey {
	return lbplane.NewFlowKey(m.state.VIPs[0].Number, client, service.Port)
}

// put gives a flow the backend with that index, as packets would.
func (m *machine) put(client netip.AddrPort, backend int, state lbplane.FlowState, idle time.Duration) {
	m.t.Helper()
	if open, err := m.x.Follow(); err != nil || !open {
		m.t.Fatalf("%v, %v", open, err)
	}
	at, ok := m.x.At(state, idle)
	if !ok {
		m.t.Fatalf("a flow that is idle for %v has timed out", idle)
	}
	var was *lbplane.Held
	if h, ok := m.x.Find(m.key(client)); ok {
		was = &h
	}
	result, err := m.x.Put(m.key(client), lbplane.Held{Backend: m.state.VIPs[0].Backends[backend].ID, Time: at}, was)
	if err != nil || result != lbplane.PutDone {
		m.t.Fatalf("%v, %v", result, err)
	}
}

// find returns which backend a flow has, -1 for none, and its state.
func (m *machine) find(client netip.AddrPort) (backend int, state lbplane.FlowState, idle time.Duration) {
	m.t.Helper()
	if open, err := m.x.Follow(); err != nil || !open {
		m.t.Fatalf("%v, %v", open, err)
	}
	h, ok := m.x.Find(m.key(client))
	if !ok {
		return -1, 0, 0
	}
	for n, b := range m.state.VIPs[0].Backends {
		if b.ID == h.Backend {
			return n, h.Time.State(), m.x.Idle(h.Time)
		}
	}
	return -2, 0, 0
}

// wait waits until something is so.
func (m *machine) wait(what string, so func() bool) {
	m.t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("%s: not within a minute; %+v", what, m.s.State())
		}
	}
}

// datagrams returns the counter of datagrams that came in the name of a peer.
func (m *machine) datagrams(of netip.AddrPort, result string) uint64 {
	return m.peer(of).Datagrams[result]
}

func (m *machine) peer(of netip.AddrPort) peerstate.Peer {
	for _, p := range m.s.State().Peers {
		if p.Address == of {
			return p
		}
	}
	return peerstate.Peer{}
}
