// SPDX-License-Identifier: Apache-2.0

package clusterbed

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy passes TCP connections on to an address, and can cut or delay them.
type Proxy struct {
	to string
	l  net.Listener

	mu     sync.Mutex
	open   map[net.Conn]struct{}
	cut    bool
	silent chan struct{} // closed unless the proxy swallows what comes
	delay  time.Duration
	work   sync.WaitGroup
}

// NewProxy starts a proxy on loopback that ends with the test.
func NewProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test's
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{to: to, l: l, open: make(map[net.Conn]struct{}), silent: make(chan struct{})}
	close(p.silent)
	p.work.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.Heal()
		p.Cut()
		p.work.Wait()
	})
	return p
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

// Cut ends all connections and takes no new ones, as if nothing listened.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	p.end()
}

// Silence swallows what comes on old and new connections until Heal, as a network that loses all packets.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.silent:
		p.silent = make(chan struct{})
	default:
	}
}

// Delay holds back each piece of data for a time, in each direction.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Heal undoes Cut, Silence and Delay. Connections that were silent end, as after a reset.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.delay = false, 0
	select {
	case <-p.silent:
	default:
		p.end()
		close(p.silent)
	}
}

// end ends all connections.
func (p *Proxy) end() {
	for c := range p.open {
		_ = c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		c, err := p.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		p.work.Go(func() { p.serve(c) })
	}
}

func (p *Proxy) serve(c net.Conn) {
	if !p.keep(c) {
		return
	}
	defer p.drop(c)
	if !p.pass() {
		return
	}
	to, err := net.Dial("tcp", p.to) //nolint:noctx // a test's
	if err != nil || !p.keep(to) {
		return
	}
	defer p.drop(to)
	done := make(chan struct{})
	p.work.Go(func() {
		p.copy(c, to)
		close(done)
	})
	p.copy(to, c)
	<-done
}

// copy passes data on until one side ends, which ends both.
func (p *Proxy) copy(dst, src net.Conn) {
	defer dst.Close()
	defer src.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := src.Read(b)
		if n > 0 && p.pass() {
			if _, err := dst.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits while the proxy is silent, and for the delay. It tells whether the connection is still there.
func (p *Proxy) pass() bool {
	p.mu.Lock()
	silent, delay := p.silent, p.delay
	p.mu.Unlock()
	time.Sleep(delay)
	<-silent
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.cut
}

// keep notes a connection, or ends it if connections are cut.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		_ = c.Close()
		return false
	}
	p.open[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = c.Close()
	delete(p.open, c)
}
