// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/lab"
)

// web is the TCP connections of client to the VIPs.
type web struct {
	lab  *lab.Lab
	vips []netip.AddrPort
	// trouble is told of connections that break for no reason.
	trouble func(format string, args ...any)

	port                                    atomic.Uint32
	begun, done, bytes, broken, unexplained atomic.Uint64

	mu sync.Mutex
	// away are the times in which a backend had no server.
	away []span
}

// span is a time. The end is zero for one that goes on.
type span struct{ from, to time.Time }

const (
	// webTimeout bounds each step of a connection.
	webTimeout = 2 * time.Minute
	// webGrace is how long after its server is back a connection may still break.
	webGrace = 3 * time.Second
	// The client's ports take turns, below the range of the kernel's: the flow of a connection that was reset stays in the table.
	firstPort, lastPort = 10000, 32767
)

// serverGone begins a time in which connections may break. back ends it.
func (w *web) serverGone() (back func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.away)
	w.away = append(w.away, span{from: time.Now()})
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.away[n].to = time.Now()
	}
}

// excused tells whether a server was away at some time since.
func (w *web) excused(since time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.away {
		if s.to.IsZero() || s.to.Add(webGrace).After(since) {
			return true
		}
	}
	return false
}

// run has connections one after the other until ctx ends. Those that are in use then are completed.
func (w *web) run(ctx context.Context, rng *rand.Rand, long bool) {
	for n := 0; ctx.Err() == nil; n++ {
		vip := w.vips[n%len(w.vips)]
		start := time.Now()
		w.begun.Add(1)
		err := w.connection(ctx, vip, rng, long)
		switch {
		case err == nil:
			w.done.Add(1)
		case w.excused(start):
			w.broken.Add(1)
		default:
			w.unexplained.Add(1)
			w.trouble("a connection to %s, begun at %s: %v", vip, start.UTC().Format(clock), err)
		}
		sleep(ctx, time.Duration(rng.IntN(200))*time.Millisecond)
	}
}

// connection has one connection: of some requests, or one that asks once a second until ctx ends.
func (w *web) connection(ctx context.Context, vip netip.AddrPort, rng *rand.Rand, long bool) error {
	conn, err := w.dial(vip)
	if err != nil {
		return err
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	name, err := w.name(conn, r)
	if err != nil {
		return err
	}
	for n := 0; long || n < 2; n++ {
		if long && !sleep(ctx, time.Second) {
			return nil
		}
		if err := w.download(conn, r, 1+rng.IntN(60_000)); err != nil {
			return fmt.Errorf("from %s by %s: %w", name, conn.LocalAddr(), err)
		}
		now, err := w.name(conn, r)
		if err == nil && now != name {
			err = fmt.Errorf("%s answers where %s has answered", now, name)
		}
		if err != nil {
			return fmt.Errorf("from %s by %s: %w", name, conn.LocalAddr(), err)
		}
	}
	return nil
}

func (w *web) dial(vip netip.AddrPort) (conn net.Conn, err error) {
	for range 100 {
		port := firstPort + int(w.port.Add(1)%(lastPort-firstPort+1))
		dialer := net.Dialer{Timeout: webTimeout, LocalAddr: &net.TCPAddr{Port: port}}
		err = w.lab.Do("client", func() (err error) { // the socket is made by this thread
			conn, err = dialer.Dial("tcp", vip.String())
			return err
		})
		if !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return conn, err
		}
	}
	return nil, err
}

func (w *web) get(conn net.Conn, r *bufio.Reader, path string) (*http.Response, error) {
	_ = conn.SetDeadline(time.Now().Add(webTimeout))
	req, err := http.NewRequest("GET", "http://vip"+path, nil)
	if err != nil {
		return nil, err
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(r, req)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return resp, err
}

// name returns the name of the backend.
func (w *web) name(conn net.Conn, r *bufio.Reader) (string, error) {
	resp, err := w.get(conn, r, "/")
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(resp.Body)
	return string(bytes.TrimSpace(b)), err
}

// download gets n bytes and compares them with what they should be.
func (w *web) download(conn net.Conn, r *bufio.Reader, n int) error {
	resp, err := w.get(conn, r, fmt.Sprintf("/bytes/%d", n))
	if err != nil {
		return err
	}
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("after %d bytes: %w", len(got), err)
	}
	want := make([]byte, n)
	_, _ = io.ReadFull(&lab.WebBytes{}, want)
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%d bytes have come, of %d, or others than were sent", len(got), n)
	}
	w.bytes.Add(uint64(n))
	return nil
}
