// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"culvert/internal/httpserve"
	"culvert/internal/show/usage"
)

// serveControl serves a source on a socket until the test ends.
func serveControl(t *testing.T, s *Source) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- httpserve.ServeControl(ctx, l, MostControls, NewControl(s), "test") }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return path
}

// send sends a text to a socket and returns all that comes back.
func sendText(t *testing.T, path, text string) string {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// TestControlBodies has requests that do not go on, or are too long.
func TestControlBodies(t *testing.T) {
	before := bodyTime
	bodyTime = 100 * time.Millisecond
	defer func() { bodyTime = before }()
	path := serveControl(t, &Source{Name: "x", Changing: new(sync.Mutex)})
	const head = "POST /v1/filter/flush HTTP/1.1\r\nHost: a\r\n"
	for text, want := range map[string]string{
		head + "Content-Length: 9\r\n\r\n{":                           "408 Request Timeout",
		head + "Content-Length: 999999999\r\n\r\n":                    "413 Request Entity Too Large",
		head + "Content-Type: text/html\r\nContent-Length: 0\r\n\r\n": "415 Unsupported Media Type",
		head + "Transfer-Encoding: chunked\r\n\r\nz\r\n":              "400 Bad Request",
		head + "Content-Length: 2\r\n\r\n[]":                          "400 Bad Request",
	} {
		if answer := sendText(t, path, text); !strings.HasPrefix(answer, "HTTP/1.1 "+want) || !strings.Contains(answer, `{"error":"`) {
			t.Errorf("%q: %s, want %s", text, answer, want)
		}
	}
}

// TestControlReload passes reloads on, with who asks.
func TestControlReload(t *testing.T) {
	var got Reload
	result, failed := &Reloaded{Name: "x", Changes: []string{}, Notes: []string{}}, error(nil)
	path := serveControl(t, &Source{Name: "x", Changing: new(sync.Mutex), Reload: func(_ context.Context, q Reload, by string) (*Reloaded, error) {
		got = q
		return result, failed
	}})
	ask := func(body string) string {
		return sendText(t, path, "POST /v1/reload HTTP/1.1\r\nHost: a\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
	}
	if answer := ask(`{"confirm": "90s", "dry_run": false}`); !strings.Contains(answer, `{"name":"x","file":"","dry_run":false,"changes":[],`) || time.Duration(got.Confirm) != 90*time.Second {
		t.Errorf("%s, %+v", answer, got)
	}
	failed = usage.Error(errors.New("no"))
	if answer := ask(`{}`); !strings.HasPrefix(answer, "HTTP/1.1 400 ") || !strings.HasSuffix(answer, "{\"error\":\"no\"}\n") {
		t.Error(answer)
	}
	failed = &RefusedError{http.StatusUnprocessableEntity, Error{Error: "bad", Errors: []Place{{File: "f", Line: 3, Error: "bad"}}}}
	if answer := ask(`{}`); !strings.HasPrefix(answer, "HTTP/1.1 422 ") || !strings.Contains(answer, `"errors":[{"file":"f","line":3,"error":"bad"}]`) {
		t.Error(answer)
	}
}
