// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// connectorCount is the number of clients that make connections at the same time, each on a thread of its own. streams is the
// number of those that read a page without end.
const (
	connectorCount = 16
	streams        = 8
)

// clientLoad is a number of running clients.
type clientLoad struct {
	// done counts connections, bytes the bytes read.
	done, bytes atomic.Uint64
	stopping    atomic.Bool
	running     sync.WaitGroup
	failed      chan error
}

// startLoad starts clients that make one short connection after the other or, with bulk, read a page without end.
func (b *tcpBed) startLoad(bulk bool) *clientLoad {
	n, work := connectorCount, shortConnections
	if bulk {
		n, work = streams, longConnections
	}
	l := &clientLoad{failed: make(chan error, n)}
	for range n {
		l.running.Add(1)
		go func() {
			defer l.running.Done()
			if err := b.client.Do(func() error { return work(l) }); err != nil {
				l.failed <- err
			}
		}()
	}
	return l
}

// stop ends all clients, and returns the first error of any.
func (l *clientLoad) stop() error {
	l.stopping.Store(true)
	l.running.Wait()
	close(l.failed)
	return <-l.failed
}

// shortConnections makes one connection after the other, each for one request.
func shortConnections(l *clientLoad) error {
	for !l.stopping.Load() {
		if _, err := ask(); err != nil {
			return err
		}
		l.done.Add(1)
	}
	return nil
}

// patience is the timeout of a client's system calls, in seconds.
const patience = 5

// connect connects to the VIP, on a thread in the client's namespace. It returns the socket, which the caller must close.
func connect() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("connect with %s: %w", vip4, err)
	}
	wait := unix.Timeval{Sec: patience}
	err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait))
	if err == nil {
		err = uninterrupted(func() error {
			return unix.Connect(fd, &unix.SockaddrInet4{Addr: vip4.Addr().As4(), Port: int(vip4.Port())})
		})
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("connect with %s: %w", vip4, err), unix.Close(fd))
	}
	return fd, nil
}

// uninterrupted repeats a system call that a signal interrupts. A connection attempt that has succeeded meanwhile counts as
// success.
func uninterrupted(call func() error) error {
	for {
		err := call()
		switch {
		case errors.Is(err, unix.EISCONN):
			return nil
		case !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EALREADY):
			return err
		}
	}
}

// get connects and requests a page. It returns the socket, which the caller must close.
func get(page string) (int, error) {
	fd, err := connect()
	if err != nil {
		return -1, err
	}
	if _, err := unix.Write(fd, []byte("GET "+page+" HTTP/1.0\r\n\r\n")); err != nil {
		return -1, errors.Join(fmt.Errorf("ask %s for a page: %w", vip4, err), unix.Close(fd))
	}
	return fd, nil
}

// ask makes a connection for one request, and returns the address that the connection ended at.
func ask() (at string, err error) {
	fd, err := get("/")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	var answer []byte
	buf := make([]byte, 4096)
	for {
		n, err := readFrom(fd, buf)
		if err != nil {
			return "", err
		}
		if n == 0 {
			break
		}
		answer = append(answer, buf[:n]...)
	}
	head, body, _ := bytes.Cut(answer, []byte("\r\n\r\n"))
	if !bytes.Contains(head, []byte(" 200 ")) || len(body) != answerLen {
		return "", fmt.Errorf("ask %s for a page: it answers %q", vip4, answer)
	}
	return string(bytes.TrimSpace(body)), nil
}

// readFrom reads from a socket. It returns 0 at the end of the stream.
func readFrom(fd int, buf []byte) (n int, err error) {
	err = uninterrupted(func() error { n, err = unix.Read(fd, buf); return err })
	if err != nil {
		return 0, fmt.Errorf("read the answer of %s: %w", vip4, err)
	}
	return n, nil
}

// longConnections reads a page without end until the load stops.
func longConnections(l *clientLoad) (err error) {
	fd, err := get(bulkPage)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	buf := make([]byte, 1<<18)
	for !l.stopping.Load() {
		n, err := readFrom(fd, buf)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("read the answer of %s: it has ended", vip4)
		}
		l.bytes.Add(uint64(n))
	}
	return nil
}

// during measures connections a second or, with bulk, bytes a second, for about the duration of a round.
func (b *tcpBed) during(bulk bool, round time.Duration) (rate float64, err error) {
	l := b.startLoad(bulk)
	count := &l.done
	if bulk {
		count = &l.bytes
	}
	// All clients need to have started, and TCP's windows to have grown.
	const settle = 50 * time.Millisecond
	time.Sleep(settle)
	begin, first := time.Now(), count.Load()
	time.Sleep(round)
	// On a busy machine a short round may be too short for a single connection.
	for count.Load() == first && time.Since(begin) < round+patience*time.Second {
		time.Sleep(time.Millisecond)
	}
	n, elapsed := count.Load()-first, time.Since(begin)
	if err := l.stop(); err != nil {
		return 0, err
	}
	return float64(n) / elapsed.Seconds(), nil
}
