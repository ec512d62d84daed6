// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// lbConnectors is how many clients connect at a time, each on a thread of its own; lbStreams how many read a long page.
const (
	lbConnectors = 16
	lbStreams    = 8
)

// lbLoad is clients at work.
type lbLoad struct {
	// done counts connections, bytes what was read.
	done, bytes atomic.Uint64
	stopping    atomic.Bool
	running     sync.WaitGroup
	failed      chan error
}

// startLoad begins: clients that connect, ask and close, or with bulk clients that read as much as they can.
func (b *lbTCPBed) startLoad(bulk bool) *lbLoad {
	n, work := lbConnectors, lbShort
	if bulk {
		n, work = lbStreams, lbLong
	}
	l := &lbLoad{failed: make(chan error, n)}
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

// stop ends all clients, and returns the first error of one.
func (l *lbLoad) stop() error {
	l.stopping.Store(true)
	l.running.Wait()
	close(l.failed)
	return <-l.failed
}

// lbShort makes connections one after the other.
func lbShort(l *lbLoad) error {
	for !l.stopping.Load() {
		if _, err := lbAsk(); err != nil {
			return err
		}
		l.done.Add(1)
	}
	return nil
}

// lbPatience is how long a client waits for anything, in seconds.
const lbPatience = 5

// lbConnect connects with the service, on a thread in the client's namespace.
func lbConnect() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("connect with %s: %w", lbVIP, err)
	}
	wait := unix.Timeval{Sec: lbPatience}
	err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait))
	if err == nil {
		err = uninterrupted(func() error {
			return unix.Connect(fd, &unix.SockaddrInet4{Addr: lbVIP.Addr().As4(), Port: int(lbVIP.Port())})
		})
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("connect with %s: %w", lbVIP, err), unix.Close(fd))
	}
	return fd, nil
}

// uninterrupted repeats a system call that a signal ends; a connection that was made meanwhile is made.
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

// lbGet connects and asks for a page. The caller closes.
func lbGet(page string) (int, error) {
	fd, err := lbConnect()
	if err != nil {
		return -1, err
	}
	if _, err := unix.Write(fd, []byte("GET "+page+" HTTP/1.0\r\n\r\n")); err != nil {
		return -1, errors.Join(fmt.Errorf("ask %s for a page: %w", lbVIP, err), unix.Close(fd))
	}
	return fd, nil
}

// lbAsk has the service answer over a connection of its own, and returns the address that was asked in the end.
func lbAsk() (at string, err error) {
	fd, err := lbGet("/")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	var answer []byte
	buf := make([]byte, 4096)
	for {
		n, err := lbRead(fd, buf)
		if err != nil {
			return "", err
		}
		if n == 0 {
			break
		}
		answer = append(answer, buf[:n]...)
	}
	head, body, _ := bytes.Cut(answer, []byte("\r\n\r\n"))
	if !bytes.Contains(head, []byte(" 200 ")) || len(body) != lbAnswer {
		return "", fmt.Errorf("ask %s for a page: it answers %q", lbVIP, answer)
	}
	return string(bytes.TrimSpace(body)), nil
}

// lbRead reads what has come, 0 bytes at the end.
func lbRead(fd int, buf []byte) (n int, err error) {
	err = uninterrupted(func() error { n, err = unix.Read(fd, buf); return err })
	if err != nil {
		return 0, fmt.Errorf("read what %s answers: %w", lbVIP, err)
	}
	return n, nil
}

// lbLong reads a page without end.
func lbLong(l *lbLoad) (err error) {
	fd, err := lbGet(lbPage)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	buf := make([]byte, 1<<18)
	for !l.stopping.Load() {
		n, err := lbRead(fd, buf)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("read what %s answers: it has ended", lbVIP)
		}
		l.bytes.Add(uint64(n))
	}
	return nil
}

// during counts connections and bytes a second for a while.
func (b *lbTCPBed) during(bulk bool, round time.Duration) (rate float64, err error) {
	l := b.startLoad(bulk)
	count := &l.done
	if bulk {
		count = &l.bytes
	}
	// So that all take part, and windows have grown.
	const settle = 50 * time.Millisecond
	time.Sleep(settle)
	begin, first := time.Now(), count.Load()
	time.Sleep(round)
	// A busy machine may get nothing done in a short round.
	for count.Load() == first && time.Since(begin) < round+lbPatience*time.Second {
		time.Sleep(time.Millisecond)
	}
	n, elapsed := count.Load()-first, time.Since(begin)
	if err := l.stop(); err != nil {
		return 0, err
	}
	return float64(n) / elapsed.Seconds(), nil
}
