// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// crowd is many connections to the VIP of a tier that all ask small requests in turn.
type crowd struct {
	b      *tier
	mu     sync.Mutex
	conns  []*webConn
	errs   map[*webConn]error
	rounds atomic.Uint64
	quit   chan struct{}
	done   sync.WaitGroup
}

// crowdWorkers is how many connections ask at the same time.
const crowdWorkers = 16

// crowdTimeout is how long an answer may take: TCP tries again some times while routes change.
const crowdTimeout = 20 * time.Second

// crowdPort is the last port that a connection was made from. Each has its own, beyond those of dialWeb.
var crowdPort atomic.Int32

func init() { crowdPort.Store(34999) }

// crowd opens connections.
func (b *tier) crowd(n int) *crowd {
	b.Helper()
	c := &crowd{b: b, errs: make(map[*webConn]error), quit: make(chan struct{})}
	b.Cleanup(c.stop)
	c.more(n)
	return c
}

// more opens more connections.
func (c *crowd) more(n int) {
	c.b.Helper()
	fresh := make([]*webConn, n)
	errs := make([]error, n)
	var opening sync.WaitGroup
	var next atomic.Int32
	for range crowdWorkers {
		opening.Go(func() {
			for at := int(next.Add(1)) - 1; at < n; at = int(next.Add(1)) - 1 {
				one, err := c.dial()
				if err == nil {
					one.backend, err = one.name()
				}
				fresh[at], errs[at] = one, err
			}
		})
	}
	opening.Wait()
	for _, err := range errs {
		check(c.b.T, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, fresh...)
}

// dial opens a connection from the next port that is free: others have had some of them.
func (c *crowd) dial() (one *webConn, err error) {
	for range 1000 {
		one, err = dialWebFrom(c.b.lab, c.b.vip, crowdTimeout, int(crowdPort.Add(1)))
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return one, err
}

// all returns the connections that have not broken.
func (c *crowd) all() (conns []*webConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.conns {
		if c.errs[one] == nil {
			conns = append(conns, one)
		}
	}
	return conns
}

// start has the connections ask, until stop.
func (c *crowd) start() {
	c.done.Go(func() {
		for {
			conns := c.all()
			var asking sync.WaitGroup
			var next atomic.Int32
			for range crowdWorkers {
				asking.Go(func() {
					for at := int(next.Add(1)) - 1; at < len(conns); at = int(next.Add(1)) - 1 {
						if err := conns[at].same(); err != nil {
							c.mu.Lock()
							c.errs[conns[at]] = err
							c.mu.Unlock()
							conns[at].Close()
						}
					}
				})
			}
			asking.Wait()
			c.rounds.Add(1)
			select {
			case <-c.quit:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
}

// round waits until each connection has asked at least once more.
func (c *crowd) round() {
	c.b.Helper()
	before := c.rounds.Load()
	for end := time.Now().Add(20 * patience); c.rounds.Load() < before+2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.b.Fatalf("connections do not go on within %s", 20*patience)
		}
	}
}

// stop closes the connections.
func (c *crowd) stop() {
	select {
	case <-c.quit:
		return
	default:
		close(c.quit)
	}
	c.done.Wait()
	for _, one := range c.conns {
		one.Close()
	}
}

func (c *crowd) broken() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.errs)
}

// first returns the error of one of the broken connections.
func (c *crowd) first() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, err := range c.errs {
		return err
	}
	return nil
}
