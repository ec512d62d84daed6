// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestListen wants errors that do not name the address, and say what to do if it is in use.
func TestListen(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for address, want := range map[string]string{
		l.Addr().String(): "address already in use: stop the process that has it ('ss -tlnp') or choose another port",
		"192.0.2.1:0":     "bind: cannot assign requested address",
	} {
		if other, err := Listen(address); err == nil || err.Error() != want {
			t.Errorf("%s: %v, %v, want %s", address, other, err, want)
		}
	}
}

// TestSlowClients has clients that do not complete their requests. The server closes their connections.
func TestSlowClients(t *testing.T) {
	before := requestTimeout
	requestTimeout = 100 * time.Millisecond
	defer func() { requestTimeout = before }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
		}), "test")
	}()
	for _, c := range []struct{ name, send, want string }{
		{"no request", "", ""},
		{"half a header", "GET / HTTP/1.1\r\nHost: a\r\n", ""},
		{"half a body", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc", ""},
		{"a request", "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 OK"},
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, c.send); err != nil {
			t.Fatal(err)
		}
		// The deadline is for a server that never closes the connection. No machine is so slow that it matters otherwise.
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		answer, err := io.ReadAll(conn)
		conn.Close()
		if err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: the connection stays open", c.name)
		}
		if !strings.HasPrefix(string(answer), c.want) {
			t.Errorf("%s: answer %q, want %q", c.name, answer, c.want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// TestServeFew has more clients at a time than are served, some of which send nothing. All others are answered, never more than two
// at a time, and each connection is closed after one answer.
func TestServeFew(t *testing.T) {
	before := localTimeout
	localTimeout = 100 * time.Millisecond
	defer func() { localTimeout = before }()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	var now, most atomic.Int32
	go func() {
		ended <- ServeFew(ctx, l, 2, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			time.Sleep(time.Millisecond)
			_, _ = io.WriteString(w, "answer")
		}), "test")
	}()
	var clients sync.WaitGroup
	for n := range 40 {
		clients.Go(func() {
			conn, err := net.Dial("unix", l.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			send, fits := "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true
			switch n % 10 {
			case 0:
				send, fits = "", false
			case 1:
				send, fits = "GET / HTTP/1.1\r\nHo", false
			case 2:
				send, fits = "GET / HTTP/1.1\r\nHost: a\r\nA: "+strings.Repeat("a", 20<<10)+"\r\n\r\n", false
			}
			_, _ = io.WriteString(conn, send) // it may be closed already
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			answer, err := io.ReadAll(conn)
			if err != nil && strings.Contains(err.Error(), "timeout") {
				t.Errorf("client %d: the connection stays open", n)
			}
			if fits != strings.HasSuffix(string(answer), "answer") || fits != strings.Contains(string(answer), "200 OK") {
				t.Errorf("client %d: answer %q to %.50q", n, answer, send)
			}
		})
	}
	clients.Wait()
	if most.Load() > 2 {
		t.Errorf("%d connections at a time, want 2", most.Load())
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("after the end: %v", err)
	}
}
