// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"log/slog"
	"reflect"
	"sync"

	"culvert/internal/datapath"
	"culvert/internal/lb/peers"
	"culvert/internal/lb/peerstate"
)

// exchange is the exchange of flows with peers, which a Serve passes on to the next one of the process.
type exchange struct {
	mu      sync.Mutex
	service *peers.Service // nil if no flows are exchanged
	publish *publisher
}

// openSockets opens the sockets for the peers, unless the service has them already.
func (p *prepared) openSockets() (err error) {
	if p.peers == nil || !p.start.Process {
		return nil
	}
	p.sockets, err = p.service.exchange.open(p.peers)
	return err
}

// open opens the sockets for the options that are not in use already, nil for none.
func (e *exchange) open(o *peers.Options) (*peers.Sockets, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.service != nil {
		return e.service.Open(o)
	}
	return peers.Open(o, nil)
}

// begin exchanges flows by the options from now on, or none for nil. sockets are those that open has returned for them.
func (e *exchange) begin(o *peers.Options, sockets *peers.Sockets, inst *datapath.Instance, log *slog.Logger) (*peers.Service, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o == nil {
		e.stop()
		return nil, nil
	}
	if e.service != nil {
		if now := e.service.Options(); !same(&now, o) {
			e.succeed(*o, sockets, log)
		}
	} else {
		if sockets == nil {
			var err error
			if sockets, err = peers.Open(o, nil); err != nil {
				return nil, err
			}
		}
		with := *o
		with.Log = log
		e.service = peers.Start(with, sockets, false)
	}
	e.service.Attach(inst)
	if e.publish == nil {
		e.publish = newPublisher(peerstate.Kind, "the exchange with peers", e.state, inst, log)
	}
	e.publish.follow(inst)
	return e.service, nil
}

// same tells whether options differ in nothing but the log.
func same(a, b *peers.Options) bool {
	one, other := *a, *b
	one.Log, other.Log = nil, nil
	return reflect.DeepEqual(one, other)
}

// succeed starts a service with other options in the place of the one that runs. Peers are not asked again: this machine has their
// flows.
func (e *exchange) succeed(o peers.Options, sockets *peers.Sockets, log *slog.Logger) {
	ready := e.service.Ready()
	o.Log = log
	e.service = peers.Start(o, e.service.Stop().Join(sockets, &o), ready)
}

// end ends the exchange.
func (e *exchange) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stop()
}

func (e *exchange) stop() {
	if e.publish != nil {
		publish := e.publish
		e.publish = nil
		e.mu.Unlock() // the publisher asks for the state
		publish.end()
		e.mu.Lock()
	}
	if e.service != nil {
		_ = e.service.Stop().Close()
		e.service = nil
	}
}

// state returns the state of the exchange, false without one.
func (e *exchange) state() (*peerstate.State, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.service == nil {
		return nil, false
	}
	return e.service.State(), true
}
