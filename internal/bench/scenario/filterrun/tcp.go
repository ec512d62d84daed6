// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
)

// tcpPort is the port of the host's echo service (RFC 862).
const tcpPort = 7

// transactions are an innocent client and its server, which exchange one byte after the other over one TCP connection.
type transactions struct {
	answered atomic.Uint64
	stopping atomic.Bool
	sockets  []int
	running  sync.WaitGroup
}

// Nice values (see sched(7)). Client and server run before the generator, and the generator before other work of the machine.
const (
	niceTransactions = -20
	niceGenerator    = -10
)

// stopInterval is how often a read is interrupted to check whether transactions should stop, in microseconds.
const stopInterval = 50_000

// startTransactions connects and starts both sides. The server runs on the CPU where its host receives, with a lower priority
// than the receiving thread. The client shares the generator's CPU but stands for a machine of its own, so it has a higher
// priority than the generator.
func startTransactions(client, server *load.Netns, clientCPU, serverCPU int) (*transactions, error) {
	t := &transactions{}
	if err := t.connect(client, server); err != nil {
		return nil, errors.Join(err, t.stop())
	}
	failed := make(chan error, 2)
	for _, side := range []struct {
		fd, cpu int
		client  bool
	}{{t.sockets[0], clientCPU, true}, {t.sockets[1], serverCPU, false}} {
		t.running.Add(1)
		go func() {
			defer t.running.Done()
			_ = load.OnThread(func() error {
				err := errors.Join(load.Pin(side.cpu), load.SetNice(0, niceTransactions))
				failed <- err
				if err == nil {
					t.serve(side.fd, side.client)
				}
				return nil
			})
		}()
	}
	if err := errors.Join(<-failed, <-failed); err != nil {
		return nil, errors.Join(err, t.stop())
	}
	return t, nil
}

// connect makes a connection and stores both sockets: the client's and the server's.
func (t *transactions) connect(client, server *load.Netns) error {
	listener := -1
	err := server.Do(func() (err error) {
		if listener, err = t.socket(); err != nil {
			return err
		}
		return errors.Join(unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.Bind(listener, &unix.SockaddrInet4{Port: tcpPort}), unix.Listen(listener, 1))
	})
	if listener >= 0 {
		defer unix.Close(listener)
	}
	if err != nil {
		return fmt.Errorf("listen for an innocent client: %w", err)
	}
	near := -1
	err = client.Do(func() (err error) {
		if near, err = t.socket(); err != nil {
			return err
		}
		t.sockets = append(t.sockets, near)
		return unix.Connect(near, &unix.SockaddrInet4{Port: tcpPort, Addr: host.As4()})
	})
	if err != nil {
		return fmt.Errorf("connect the innocent client with %s: %w", netip.AddrPortFrom(host, tcpPort), err)
	}
	far, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err != nil {
		return fmt.Errorf("accept the innocent client: %w", err)
	}
	t.sockets = append(t.sockets, far)
	return errors.Join(t.prepare(near), t.prepare(far))
}

func (t *transactions) socket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	// The timeout covers a connection attempt whose SYN is not answered.
	const seconds = 5
	return fd, errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, seconds*1000),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: seconds}))
}

// prepare makes a socket send at once, bounds the time of its reads, and makes it reset the connection when it is closed.
func (*transactions) prepare(fd int) error {
	return errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: stopInterval}),
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
}

// serve sends a byte for each byte received. The client sends the first one.
func (t *transactions) serve(fd int, client bool) {
	b := make([]byte, 1)
	for send := client; !t.stopping.Load(); {
		if send {
			if _, err := unix.Write(fd, b); err != nil {
				return
			}
		}
		n, err := unix.Read(fd, b)
		send = err == nil && n == 1
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case !send:
			return
		case client:
			t.answered.Add(1)
		}
	}
}

// stop ends both sides and closes their sockets.
func (t *transactions) stop() error {
	t.stopping.Store(true)
	t.running.Wait()
	var err error
	for _, fd := range t.sockets {
		err = errors.Join(err, unix.Close(fd))
	}
	t.sockets = nil
	return err
}
