// SPDX-License-Identifier: Apache-2.0

package fleetrun

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
	"culvert/internal/cluster/etcd"
)

// dialers make connections in a namespace, a few at a time and on few threads.
//
// Real nodes have CPUs of their own. Here those of a thousand share few, and if all of them greet members at once, each is slow: etcd
// gives up connections on which nothing is said for 10 s, nodes come again, and on a busy machine the fleet never joins. The work is the
// same when some wait until others are done. A thread for each connection would make it worse: Go's scheduler then hands over between
// thousands of threads for most of the time.
type dialers struct {
	asked chan dialing
	ended chan struct{}
	once  sync.Once
	// greeting has room for the connections that greet at the same time.
	greeting chan struct{}
}

// dialing is a connection that is asked for. done has room for the answer.
type dialing struct {
	to   netip.AddrPort
	done chan dialed
}

// dialed is a connected socket.
type dialed struct {
	fd  int
	err error
}

const (
	// dialerCount is how many threads there are. A thread waits only for a machine that does not take connections.
	dialerCount = 4
	// mostGreeting is how many connections greet at the same time.
	mostGreeting = 64
)

// newDialers starts the threads. They end with end.
func newDialers(space *load.Netns) (*dialers, error) {
	d := &dialers{asked: make(chan dialing), ended: make(chan struct{}), greeting: make(chan struct{}, mostGreeting)}
	for range dialerCount {
		entered := make(chan error, 1)
		go func() {
			_ = load.OnThread(func() error {
				err := space.Enter()
				entered <- err
				for err == nil {
					select {
					case q := <-d.asked:
						fd, err := connected(q.to)
						q.done <- dialed{fd, err}
					case <-d.ended:
						return nil
					}
				}
				return nil
			})
		}()
		if err := <-entered; err != nil {
			d.end()
			return nil, err
		}
	}
	return d, nil
}

// end ends the threads. Whoever dials afterwards gets an error. It may be called again.
func (d *dialers) end() {
	if d != nil {
		d.once.Do(func() { close(d.ended) })
	}
}

// dial makes a connection to an IPv4 address with a port.
func (d *dialers) dial(ctx context.Context, addr string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	select {
	case d.greeting <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.ended:
		return nil, net.ErrClosed
	}
	c := &greeter{greeted: func() { <-d.greeting }}
	if c.Conn, err = d.connect(ctx, to); err != nil {
		c.greeted()
		return nil, err
	}
	return c, nil
}

// connect has a thread make a connection.
func (d *dialers) connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	q := dialing{to, make(chan dialed, 1)}
	select {
	case d.asked <- q:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.ended:
		return nil, net.ErrClosed
	}
	made := <-q.done
	if made.err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to, made.err)
	}
	f := os.NewFile(uintptr(made.fd), to.String())
	defer f.Close()
	return net.FileConn(f)
}

// greeter is a connection that calls greeted once, when the greeting is over: the third time that something is sent, since TLS 1.3 sends
// twice, or when the connection is closed.
type greeter struct {
	net.Conn
	sent    atomic.Int32
	once    sync.Once
	greeted func()
}

// Write implements net.Conn.
func (g *greeter) Write(b []byte) (int, error) {
	n, err := g.Conn.Write(b)
	const all = 3
	if g.sent.Add(1) == all {
		g.once.Do(g.greeted)
	}
	return n, err
}

// Close implements net.Conn.
func (g *greeter) Close() error {
	g.once.Do(g.greeted)
	return g.Conn.Close()
}

// connected returns a socket of the thread's namespace that is connected. It blocks the thread, since Go's way of waiting would hand over
// to another thread and back.
func connected(to netip.AddrPort) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	within := unix.NsecToTimeval(etcd.DialTime.Nanoseconds()) // Linux bounds the connecting by it too
	if err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &within); err == nil {
		for err = unix.EINTR; err == unix.EINTR; { // a signal only ends the waiting
			err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
