// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"culvert/internal/httpserve"
)

// pause bounds how long a request waits for the next handler.
const pause = 10 * time.Second

// Endpoint is a TCP address that serves HTTP for one server after the other.
type Endpoint struct {
	// Address is the address as the configuration has it.
	Address  string
	listener net.Listener
	holders  Holders
	ctx      context.Context
	cancel   context.CancelFunc
	start    sync.Once
	started  atomic.Bool
	done     chan struct{}
	err      error // of the server, valid once done is closed

	mu      sync.Mutex
	handler http.Handler // nil between two servers
	changed chan struct{}
}

// NewEndpoint returns an endpoint with one holder.
func NewEndpoint(address string, l net.Listener) *Endpoint {
	e := &Endpoint{Address: address, listener: l, done: make(chan struct{}), changed: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.holders.Hold()
	return e
}

// Hold adds a holder.
func (e *Endpoint) Hold() { e.holders.Hold() }

// Drop takes a holder away. Without a holder the endpoint is closed.
func (e *Endpoint) Drop() {
	if e.holders.Drop() {
		e.close()
	}
}

// Listener returns what listens at the address.
func (e *Endpoint) Listener() net.Listener { return e.listener }

// Open tells whether the endpoint can still serve.
func (e *Endpoint) Open() bool { return e.ctx.Err() == nil }

// Started tells whether the endpoint has served before.
func (e *Endpoint) Started() bool { return e.started.Load() }

// close ends the server, or closes the listener if none has started.
func (e *Endpoint) close() {
	e.cancel()
	e.start.Do(func() {
		_ = e.listener.Close()
		close(e.done)
	})
	<-e.done
}

// Serve has h answer requests until ctx ends. If the endpoint goes on then, requests wait for the next handler; otherwise it is
// closed. what names the service in errors.
func (e *Endpoint) Serve(ctx context.Context, h http.Handler, what string, goesOn func() bool) error {
	e.set(h)
	e.start.Do(func() {
		e.started.Store(true)
		go func() {
			defer close(e.done)
			e.err = httpserve.Serve(e.ctx, e.listener, e, what)
		}()
	})
	select {
	case <-e.done:
		e.cancel() // nobody takes it over
		return e.err
	case <-ctx.Done():
	}
	if goesOn() {
		e.set(nil)
	} else {
		e.close()
	}
	return nil
}

func (e *Endpoint) set(h http.Handler) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handler = h
	close(e.changed)
	e.changed = make(chan struct{})
}

// ServeHTTP implements http.Handler.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	timeout := time.NewTimer(pause)
	defer timeout.Stop()
	for {
		e.mu.Lock()
		h, changed := e.handler, e.changed
		e.mu.Unlock()
		if h != nil {
			h.ServeHTTP(w, r)
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-timeout.C:
			http.Error(w, "the configuration is being changed: try again", http.StatusServiceUnavailable)
			return
		}
	}
}
