// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"context"
	"net"
	"sync"
)

// Place serves at an address that may change.
type Place struct {
	// Serve serves until ctx ends, and Failed gets the error with which it has ended by itself.
	Serve  func(ctx context.Context, l net.Listener) error
	Failed func(error)

	address  string
	listener net.Listener
	stop     context.CancelFunc
	work     sync.WaitGroup
}

// Address returns where it serves, "" for nowhere.
func (p *Place) Address() string { return p.address }

// Listener returns what listens there, nil for nothing.
func (p *Place) Listener() net.Listener { return p.listener }

// Listen opens a listener at another address, nil if the address is the same or there is none. It may overlap with the address
// before, and with those of others that are about to be closed.
func (p *Place) Listen(address string, others ...net.Listener) (net.Listener, error) {
	if address == p.address || address == "" {
		return nil, nil
	}
	return Listen(address, append(others, p.listener)...)
}

// Move serves at an address from now on, by a listener from Listen.
func (p *Place) Move(address string, l net.Listener) {
	if address == p.address {
		return
	}
	p.Close()
	p.address = address
	if l == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop, p.listener = stop, l
	p.work.Go(func() {
		if err := p.Serve(ctx, l); err != nil {
			p.Failed(err)
		}
	})
}

// Close ends serving.
func (p *Place) Close() {
	if p.stop != nil {
		p.stop()
		p.work.Wait()
		p.stop = nil
	}
	p.address, p.listener = "", nil
}
