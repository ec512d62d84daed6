// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"culvert/internal/httpserve"
	"culvert/internal/show/planes"
)

// ask sends a request to a handler, and wants one line of JSON.
func ask(t *testing.T, h http.Handler, method, target string) (status int, text string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	text = w.Body.String()
	if !json.Valid([]byte(text)) || strings.Count(text, "\n") != 1 || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%s %.100s: %d %v %.200q, want one line of JSON", method, target, w.Code, w.Header(), text)
	}
	return w.Code, text
}

// TestRefused has requests without an answer.
func TestRefused(t *testing.T) {
	h := Handler(&Source{Name: "x"})
	for _, c := range []struct {
		method, target string
		status         int
		want           string
	}{
		{"POST", "/v1/status", 405, "only shows"},
		{"DELETE", "/v1/filter", 405, "only shows"},
		{"OPTIONS", "/none", 405, "only shows"},
		{"GET", "/", 404, "/v1/ lists them"},
		{"GET", "/v1", 404, "/v1/ lists them"},
		{"GET", "/v1/reload", 404, "it is on the socket of root"},
		{"GET", "/serving", 404, "/v1/ lists them"},
		{"GET", "/v1/../v1/status", 404, "/v1/ lists them"},
		{"GET", "/v1/%3Cb%3E%0A", 404, "/v1/ lists them"},
		{"GET", "/" + strings.Repeat("a", 5000), 404, "/v1/ lists them"},
		{"GET", "/v1/version?x=1", 400, "no parameter x"},
		{"GET", "/v1/version?%zz", 400, "cannot be read"},
		{"GET", "/v1/lb/flows?n=0", 400, "from 1 to 10000"},
		{"GET", "/v1/lb/flows?n=10001", 400, "from 1 to 10000"},
		{"GET", "/v1/lb/flows?n=1e3", 400, "from 1 to 10000"},
		{"GET", "/v1/lb/flows?n=1&n=2", 400, "2 times"},
	} {
		status, text := ask(t, h, c.method, c.target)
		var e struct{ Error string }
		if err := json.Unmarshal([]byte(text), &e); err != nil || status != c.status || !strings.Contains(e.Error, c.want) || len(text) > 400 {
			t.Errorf("%s %.50s: %d %.500s, want %d and %q", c.method, c.target, status, text, c.status, c.want)
		}
	}
}

// TestFixed has the answers that need no data plane.
func TestFixed(t *testing.T) {
	h := Handler(&Source{Name: "edge"})
	for path, want := range map[string]string{
		"/v1/":        `{"path":"/v1/status","what":"what is attached, and what it has counted","verb":"culvert status --on edge -j"}`,
		"/v1/version": `{"version":"`,
		"/v1/reasons": `"verdict":"drop"`,
	} {
		if status, text := ask(t, h, "GET", path); status != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s, want %s", path, status, text, want)
		}
	}
}

// TestBadAnswers has answers that fail in every way. Those that come after them are made all the same.
func TestBadAnswers(t *testing.T) {
	before := makeTime
	makeTime = time.Minute
	defer func() { makeTime = before }()
	stuck := make(chan struct{})
	var logged string
	path := func(name string, write func(io.Writer) error) Path {
		return Path{Path: name, write: func(_ *Source, _ url.Values, out io.Writer) error { return write(out) }}
	}
	h := newServer(&Source{LogError: func(message string, fields ...any) { logged += message + fmt.Sprint(fields...) }}, []Path{
		path("/good", func(out io.Writer) error { _, err := io.WriteString(out, "{\n \"a\": \"b  c\"}\n"); return err }),
		path("/panic", func(io.Writer) error { panic("oops") }),
		path("/error", func(io.Writer) error { return errors.New("not read") }),
		path("/absent", func(io.Writer) error { return fmt.Errorf("looking: %w", new(planes.AbsentError)) }),
		path("/text", func(out io.Writer) error { _, err := io.WriteString(out, "not JSON"); return err }),
		path("/large", func(out io.Writer) error {
			for range maxAnswer/1024 + 1 {
				if _, err := out.Write(make([]byte, 1024)); err != nil {
					return fmt.Errorf("writing: %w", err)
				}
			}
			return nil
		}),
		path("/stuck", func(io.Writer) error { <-stuck; return nil }),
	})
	good := func() {
		t.Helper()
		if status, text := ask(t, h, "GET", "/good"); status != 200 || text != "{\"a\":\"b  c\"}\n" {
			t.Errorf("/good: %d %s", status, text)
		}
	}
	for path, want := range map[string]int{"/panic": 500, "/error": 500, "/absent": 404, "/text": 500, "/large": 500} {
		if status, text := ask(t, h, "GET", path); status != want {
			t.Errorf("%s: %d %s, want %d", path, status, text, want)
		}
		good()
	}
	if !strings.Contains(logged, "oops") {
		t.Errorf("the log has no panic: %s", logged)
	}
	makeTime = 100 * time.Millisecond
	for range 2 { // the second one waits for the first
		if status, text := ask(t, h, "GET", "/stuck"); status != 503 {
			t.Errorf("/stuck: %d %s, want 503", status, text)
		}
	}
	close(stuck)
	makeTime = time.Minute
	good()
}

// TestReadersThatStop has clients that ask for a large answer and do not read it. They leave their place to others.
func TestReadersThatStop(t *testing.T) {
	before := sendTime
	sendTime = time.Second // long enough for the client that reads, on a machine that is busy
	defer func() { sendTime = before }()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	h := newServer(&Source{}, []Path{{Path: "/large", write: func(_ *Source, _ url.Values, out io.Writer) error {
		_, err := fmt.Fprintf(out, "%q", strings.Repeat("a", maxAnswer/2))
		return err
	}}})
	go func() { ended <- httpserve.ServeFew(ctx, l, 2, h, "test") }()
	dial := func() net.Conn {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for range 6 {
		dial()
	}
	end := time.Now().Add(5 * time.Minute)
	for { // a slow machine may not be in time at once
		c := dial()
		_ = c.SetReadDeadline(end)
		answer, err := io.ReadAll(c)
		c.Close()
		if err == nil && strings.HasPrefix(string(answer), "HTTP/1.1 200 OK") && strings.HasSuffix(string(answer), "a\"\n") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d bytes, %v: %.200q", len(answer), err, answer)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestMetrics passes on what the handler of metrics answers, and asks for no other encoding.
func TestMetrics(t *testing.T) {
	h := Handler(&Source{Metrics: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s %q %q\n", r.Method, r.URL, r.Header.Get("Accept"), r.Header.Get("Accept-Encoding"))
	})})
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept", "text/plain")
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusTeapot || w.Body.String() != "GET /metrics \"text/plain\" \"\"\n" || w.Header().Get("Content-Type") != "text/plain; version=0.0.4" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// TestPathsAreSorted wants each path once.
func TestPathsAreSorted(t *testing.T) {
	before := ""
	for _, p := range Paths() {
		own := p.Path == MetricsPath || p.Path == listPath || p.Content != ""
		if p.Path <= before || p.What == "" || (p.write == nil) != own || (p.Answer == nil) != (p.Path == MetricsPath) || p.Method != "" {
			t.Errorf("%+v behind %s", p, before)
		}
		before = p.Path
	}
	before = ""
	for _, p := range Changes() {
		if p.Path <= before || p.What == "" || p.Request == nil || p.Answer == nil || p.Method == "" || p.Verb == "" {
			t.Errorf("%+v behind %s", p, before)
		}
		before = p.Path
	}
}
