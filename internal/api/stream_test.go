// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/events"
	"culvert/internal/testbed"
)

// follow asks for events, and returns a reader of what follows the head of the answer.
func follow(t *testing.T, path string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", EventsPath); err != nil {
		t.Fatal(err)
	}
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || a.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", a, err)
	}
	return c, bufio.NewReader(a.Body)
}

// next returns the next event.
func next(t *testing.T, r *bufio.Reader) (e events.Event) {
	t.Helper()
	line, err := r.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// await waits for something that comes at last.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(testbed.Patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not so: " + what)
		}
	}
}

// flood is how many events of eventSize bytes are more than a socket and the queue of a reader hold.
const (
	flood     = 2000
	eventSize = 1 << 10
)

// TestStoppedReader has a client of events that stops reading. Nobody waits for it, and other clients get all events and all answers.
// When it reads on, it is told how many events it has lost.
func TestStoppedReader(t *testing.T) {
	hub := events.NewHub()
	path := serveControl(t, &Source{Name: "x", Events: hub, Changing: new(sync.Mutex)})
	_, stopped := follow(t, path)
	_, other := follow(t, path)
	text := strings.Repeat("x", eventSize)
	for n := range flood {
		hub.Emit(events.Event{Event: "e", Text: text, Fields: map[string]any{"n": n}})
		if e := next(t, other); e.Fields["n"] != float64(n) {
			t.Fatalf("event %d of another client is %+v", n, e)
		}
	}
	if answer := sendText(t, path, "GET /v1/version HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.1 200 ") {
		t.Errorf("beside a client that does not read: %.300s", answer)
	}
	got, lost := 0, uint64(0)
	for got < flood && lost == 0 {
		if e := next(t, stopped); e.Event == events.KindLost {
			lost = e.Lost
		} else {
			got++
			hub.Emit(events.Event{Event: "more"}) // has the hub say what was lost
		}
	}
	if lost == 0 {
		t.Fatal("a client that has stopped has lost no event")
	}
	t.Logf("%d events were read, and %d lost", got, lost)
}

// TestStoppedReaderIsCut has a client of events that does not read for longer than it may. It is cut off, and makes room for others.
func TestStoppedReaderIsCut(t *testing.T) {
	before := streamTime
	streamTime = 50 * time.Millisecond
	defer func() { streamTime = before }()
	hub := events.NewHub()
	path := serveControl(t, &Source{Name: "x", Events: hub, Changing: new(sync.Mutex)})
	for range mostStreams {
		follow(t, path)
	}
	if answer := sendText(t, path, "GET "+EventsPath+" HTTP/1.1\r\nHost: a\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.1 503 ") {
		t.Errorf("one client more than there is room for: %.300s", answer)
	}
	await(t, "those that do not read are cut off", func() bool {
		hub.Emit(events.Event{Event: "e", Text: strings.Repeat("x", eventSize)})
		return !hub.Followed()
	})
	_, r := follow(t, path)
	hub.Emit(events.Event{Event: "e"})
	next(t, r)
}

// TestStoppedReaderAtTheEnd ends a process with a client that does not read. The end does not wait for it, however long a client may
// take at other times.
func TestStoppedReaderAtTheEnd(t *testing.T) {
	before := streamTime
	streamTime = time.Hour
	defer func() { streamTime = before }()
	hub := events.NewHub()
	ending, end := context.WithCancel(t.Context())
	defer end()
	h, ended := Handler(&Source{Name: "x", Events: hub}), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		h.ServeHTTP(w, r.WithContext(ending))
	}))
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server.Listener.Close()
	server.Listener = l
	server.Start()
	defer server.Close()
	c, _ := follow(t, l.Addr().String())
	defer c.Close()
	for range flood {
		hub.Emit(events.Event{Event: "e", Text: strings.Repeat("x", eventSize)})
		time.Sleep(50 * time.Microsecond) // so that the handler's queue is not what is full
	}
	end()
	select {
	case <-ended:
	case <-time.After(testbed.Patience):
		t.Fatal("the answer does not end")
	}
}

func TestInParameters(t *testing.T) {
	for text, want := range map[string]string{
		"--verdict x: there are pass, punt":         "verdict=x: there are pass, punt",
		"--stage route --reason filter: no packets": "stage=route reason=filter: no packets",
		"-i 99 times: use 8":                        "interface=99 times: use 8",
		"-s 70000: at most 65000":                   "snap=70000: at most 65000",
		"captures already: see 'culvert status'":    "captures already: see 'culvert status'",
		"--trace with -w: leave one out":            "--trace with -w: leave one out",
		"a filter-syn and x -n: no":                 "a filter-syn and x n: no",
	} {
		if got := inParameters(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestOtherThanLeft(t *testing.T) {
	left, other := fmt.Errorf("writing packets: %w", unix.EPIPE), errors.New("the programs are not as before")
	for _, c := range []struct{ err, want error }{
		{nil, nil}, {left, nil}, {errors.Join(left, nil), nil}, {os.ErrDeadlineExceeded, os.ErrDeadlineExceeded}, {errors.Join(left, other), other},
	} {
		if got := otherThanLeft(c.err); !errors.Is(got, c.want) || (got == nil) != (c.want == nil) || errors.Is(got, unix.EPIPE) {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
