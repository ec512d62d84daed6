// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/peerstate"
)

// Service exchanges flows with the peers.
type Service struct {
	o       Options
	sockets *Sockets
	epoch   uint64
	changed chan struct{}
	done    chan struct{}
	running sync.WaitGroup

	mu     sync.Mutex // of the fields below
	inst   *datapath.Instance
	plane  *uint64 // the ID of the data plane whose flows are exchanged, nil until it is known
	x      *lbplane.Exchange
	open   bool // x has a flow table
	state  *lb.State
	names  *names // nil until the state is known
	seal   *codec
	peers  map[netip.AddrPort]*peer
	told   map[lbplane.FlowKey]told
	held   map[lbplane.FlowKey]held // flows that are as peers have told, without packets here since
	queue  []item
	seq    uint64 // of the last datagram with flows
	sent   time.Time
	rate   bucket
	scans  scans
	failed map[string]string // the errors that have been logged, by what fails
	counts counts
	bulk   bulkState
}

// counts are those of peerstate.State.
type counts struct {
	deviating, untold, told, sendErrors, strangers uint64
	flows                                          map[string]uint64
}

// item is a flow that is to be told.
type item struct {
	key  lbplane.FlowKey
	held lbplane.Held
}

// Start begins the exchange. It takes the sockets over. ready tells that the peers need not be asked for their flows.
func Start(o Options, sockets *Sockets, ready bool) *Service {
	s := &Service{
		o: o, sockets: sockets, changed: make(chan struct{}, 1), done: make(chan struct{}), seal: newCodec(o.Key[:]),
		peers: make(map[netip.AddrPort]*peer), told: make(map[lbplane.FlowKey]told), held: make(map[lbplane.FlowKey]held),
		rate: newBucket(float64(o.Rate), float64(o.Rate)/10+100), failed: make(map[string]string),
		counts: counts{flows: make(map[string]uint64)},
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails (crypto/rand)
	s.epoch = binary.BigEndian.Uint64(b[:])
	for _, at := range o.Peers {
		s.peers[at] = newPeer(at, o.Rate)
	}
	for _, result := range peerstate.Flows {
		s.counts.flows[result] = 0
	}
	switch {
	case o.Bulk == nil:
		s.bulk.state = peerstate.BulkOff
	case ready || len(o.Peers) == 0:
		s.bulk.state = peerstate.BulkDone
	default:
		s.bulk.state = peerstate.BulkAsking
	}
	sockets.resume()
	s.running.Go(s.receive)
	s.running.Go(s.run)
	if sockets.tcp != nil {
		s.running.Go(s.serveBulk)
	}
	return s
}

// Options returns the options of the service.
func (s *Service) Options() Options { return s.o }

// Open opens the sockets that other options need beside those of the service, nil for none.
func (s *Service) Open(o *Options) (*Sockets, error) { return Open(o, s.sockets) }

// Attach has the service exchange the flows of a data plane from now on. It sends none before Follow.
func (s *Service) Attach(i *datapath.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.x != nil {
		s.x.Close()
	}
	s.inst, s.x, s.open, s.names, s.state = i, lbplane.NewExchange(i), false, nil, nil
}

// Follow takes over a state that the data plane follows now: other rings, backends or VIPs. It does not wait.
func (s *Service) Follow(state lb.State) {
	s.mu.Lock()
	s.state, s.scans.changed = &state, true
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Ready tells whether the peers have been asked for their flows, so that addresses may be announced.
func (s *Service) Ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notePlane()
	return s.bulk.state != peerstate.BulkAsking
}

// notePlane has the peers be asked again if the data plane was detached and attached again: what they have told meanwhile is missing.
func (s *Service) notePlane() {
	if s.inst == nil {
		return
	}
	id := s.inst.ID()
	switch {
	case id == 0 && !s.inst.Temporary(): // it is detached
	case s.plane == nil:
		s.plane = &id
	case *s.plane != id:
		s.plane = &id
		if s.o.Bulk != nil && len(s.o.Peers) > 0 {
			s.bulk.state, s.bulk.why, s.bulk.again = peerstate.BulkAsking, "", s.bulk.asking
		}
	}
}

// turn is the time between two turns of run.
const turn = 50 * time.Millisecond

// run looks for flows to tell and tells them, until the service ends.
func (s *Service) run() {
	ticker := time.NewTicker(turn)
	defer ticker.Stop()
	for {
		s.turn(time.Now())
		select {
		case <-s.done:
			return
		case <-s.changed:
		case <-ticker.C:
		}
	}
}

func (s *Service) turn(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.x == nil || s.state == nil {
		return
	}
	s.notePlane()
	var err error
	if s.open, err = s.x.Follow(); err == nil && s.open {
		err = s.scanWhenDue(now)
	}
	s.failing("flows are not exchanged with the peers of the load balancer", err)
	s.look(now)
	if s.names == nil {
		return
	}
	s.send(now)
	if s.open && s.bulk.state == peerstate.BulkAsking && !s.bulk.asking {
		s.bulk.asking = true
		s.running.Go(s.ask)
	}
}

// failing logs an error of what once, until it changes or is nil.
func (s *Service) failing(what string, err error) {
	if err == nil {
		delete(s.failed, what)
		return
	}
	if err.Error() != s.failed[what] {
		s.failed[what] = err.Error()
		s.o.Log.Error(what, "err", err)
	}
}

// fail is failing for a caller without the lock.
func (s *Service) fail(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing(what, err)
}

// Stop ends the exchange and returns the sockets.
func (s *Service) Stop() *Sockets {
	close(s.done)
	s.sockets.interrupt()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.x != nil {
		s.x.Close()
		s.x, s.open = nil, false
	}
	return s.sockets
}

// stopped tells whether Stop has been called.
func (s *Service) stopped() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// State returns the state of the exchange.
func (s *Service) State() *peerstate.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	out := &peerstate.State{
		Listen: s.o.Listen, Bulk: s.bulk.state, BulkError: s.bulk.why, Deviating: c.deviating, Untold: c.untold, Held: uint64(len(s.held)),
		Limit: uint64(s.limit()), Told: c.told, SendErrors: c.sendErrors, Strangers: c.strangers, Flows: make(map[string]uint64),
		Peers: []peerstate.Peer{},
	}
	for result, n := range c.flows {
		out.Flows[result] = n
	}
	for _, at := range s.o.Peers {
		p := s.peers[at]
		one := peerstate.Peer{
			Address: at, Up: p.up, Since: p.since, OtherSeed: p.otherSeed, OtherRings: p.otherRings, Wrong: p.wrong,
			Datagrams: make(map[string]uint64),
		}
		for result, n := range p.datagrams {
			one.Datagrams[result] = n
		}
		out.Peers = append(out.Peers, one)
	}
	return out
}

// limit returns the largest number of flows that are told, and of those from peers that are kept.
func (s *Service) limit() int {
	if s.o.Flows > 0 || !s.open {
		return s.o.Flows
	}
	return s.x.Room() / 4
}
