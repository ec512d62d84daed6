// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// MostConnections is how many connections are to be served at a time.
const MostConnections = 32

// ClockHeader is the header that says when an answer was begun: in seconds since the machine's start, so that the rate of a counter
// can be told from two answers, whatever becomes of the time of day and of the process.
const ClockHeader = "Culvert-Clock"

// readClock returns the value of ClockHeader, "" if the kernel does not tell.
func readClock() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return ""
	}
	return strconv.FormatFloat(time.Duration(now.Nano()).Seconds(), 'f', 6, 64)
}

// maxAnswer bounds the bytes of an answer: with MostConnections it bounds the memory that clients can take.
const maxAnswer = 8 << 20

// sendTime is how long a client may take to read its answer. It is a variable for tests.
var sendTime = 5 * time.Second

// makeTime is how long a client waits for its answer to be made, with those before it. It is a variable for tests.
var makeTime = 10 * time.Second

// NoPath is what an answer says of a path that there is not.
const NoPath = "is no path here"

// server is a handler of requests.
type server struct {
	source *Source
	paths  map[string]Path
	order  []Path
	// changes tells whether there are paths that change something.
	changes bool
	// streams bounds how many clients read events.
	streams chan struct{}
	// turn is held while an answer is made: one at a time, so that clients cannot keep more than one CPU busy.
	turn chan struct{}
}

// Handler answers requests about a data plane.
func Handler(s *Source) http.Handler { return newServer(s, Paths()) }

func newServer(s *Source, paths []Path) *server {
	h := &server{source: s, paths: make(map[string]Path), order: paths, turn: make(chan struct{}, 1), streams: make(chan struct{}, mostStreams)}
	for _, p := range paths {
		h.paths[p.Path] = p
		h.changes = h.changes || p.Method != ""
	}
	return h
}

// ServeHTTP implements http.Handler.
func (h *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The time in which a request has to arrive would end the context of one that has arrived.
	if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return
	}
	p, ok := h.paths[r.URL.Path]
	get := r.Method == http.MethodGet || r.Method == http.MethodHead
	if !ok && (get || h.changes) {
		refuse(w, http.StatusNotFound, Error{Error: h.noPath(r.URL.Path)})
		return
	}
	if !get {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, Error{Error: fmt.Sprintf("%.20q: %s: use GET or HEAD", r.Method, h.only(r.URL.Path))})
		return
	}
	q, err := p.query(r.URL)
	if err != nil {
		refuseFor(w, err)
		return
	}
	if p.Content != "" {
		h.follow(w, r, p, q)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), makeTime)
	defer cancel()
	a, err := h.answer(ctx, r, p, q)
	if err != nil {
		refuseFor(w, err)
		return
	}
	if a.clock != "" {
		w.Header().Set(ClockHeader, a.clock)
	}
	send(w, a.status, a.kind, a.text.Bytes())
}

// follow writes an answer that does not end by itself.
func (h *server) follow(w http.ResponseWriter, r *http.Request, p Path, q url.Values) {
	switch {
	case r.Method == http.MethodHead:
		w.Header().Set("Content-Type", p.Content)
		w.WriteHeader(http.StatusOK)
	case p.Path == EventsPath:
		h.events(r.Context(), w)
	case p.Path == CapturePath:
		h.capture(r.Context(), w, q, r.RemoteAddr)
	}
}

// noPath says that there is no such path, or where it is.
func (h *server) noPath(path string) string {
	named := func(p Path) bool { return p.Path == path }
	if !h.changes && slices.ContainsFunc(slices.Concat(Controls(), Changes()), named) {
		return fmt.Sprintf("%s %s: it is on the socket of root, /run/culvert/NAME.sock", path, NoPath)
	}
	return fmt.Sprintf("%.100q %s: %s lists them", path, NoPath, listPath)
}

// only says why a path takes no other method.
func (h *server) only(path string) string {
	if !h.changes {
		return "this socket only shows"
	}
	return path + " only shows"
}

// answer is an answer that has been made. It is bounded.
type answer struct {
	status int
	kind   string // of its content
	clock  string // for ClockHeader, "" for a text that does not change
	text   bytes.Buffer
}

var (
	errBusy  = errors.New("other requests take too long: try again later")
	errSlow  = errors.New("the answer takes too long: try again later")
	errLarge = fmt.Errorf("the answer has more than %d MiB: use the command line", maxAnswer>>20)
)

// Write implements io.Writer.
func (a *answer) Write(b []byte) (int, error) {
	if a.text.Len()+len(b) > maxAnswer {
		return 0, errLarge
	}
	return a.text.Write(b)
}

// answer makes an answer. It returns when ctx ends, also if the answer is never made: what is stuck holds no connection.
func (h *server) answer(ctx context.Context, r *http.Request, p Path, q url.Values) (*answer, error) {
	if p.fixed {
		return h.write(r, p, q)
	}
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, errBusy
	}
	type made struct {
		answer *answer
		err    error
	}
	done := make(chan made, 1)
	go func() {
		defer func() { <-h.turn }()
		a, err := h.write(r, p, q)
		done <- made{a, err}
	}()
	select {
	case m := <-done:
		return m.answer, m.err
	case <-ctx.Done():
		return nil, errSlow
	}
}

// write makes an answer, whatever happens meanwhile.
func (h *server) write(r *http.Request, p Path, q url.Values) (a *answer, err error) {
	defer func() {
		if what := recover(); what != nil {
			h.source.LogError("showing something failed; packets and configuration are not affected", "path", p.Path, "panic", what,
				"stack", string(debug.Stack()))
			a, err = nil, errors.New("a mistake in culvert: its log has more")
		}
	}()
	if p.Path == MetricsPath {
		return h.metrics(r)
	}
	all, clock := new(answer), ""
	if p.Path == listPath {
		err = h.list(all)
	} else {
		if !p.fixed {
			clock = readClock()
		}
		err = p.write(h.source, q, all)
	}
	if err != nil {
		return nil, err
	}
	a = &answer{status: http.StatusOK, kind: "application/json", clock: clock}
	if err := json.Compact(&a.text, all.text.Bytes()); err != nil {
		return nil, err
	}
	a.text.WriteByte('\n')
	return a, nil
}

// metrics returns what the handler of metrics answers.
func (h *server) metrics(r *http.Request) (*answer, error) {
	w := &recorder{header: http.Header{}, answer: answer{status: http.StatusOK}}
	fresh, err := http.NewRequest(http.MethodGet, MetricsPath, nil)
	if err != nil {
		return nil, err
	}
	if accept := r.Header.Get("Accept"); accept != "" {
		fresh.Header.Set("Accept", accept)
	}
	h.source.Metrics.ServeHTTP(w, fresh)
	if w.failed != nil {
		return nil, w.failed
	}
	w.kind = w.header.Get("Content-Type")
	return &w.answer, nil
}

// recorder keeps what a handler writes.
type recorder struct {
	answer
	header http.Header
	failed error
}

// Header implements http.ResponseWriter.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *recorder) Write(b []byte) (int, error) {
	n, err := w.answer.Write(b)
	w.failed = errors.Join(w.failed, err)
	return n, err
}

// refuse answers a request with an error.
func refuse(w http.ResponseWriter, status int, answer Error) {
	b, err := json.Marshal(answer)
	if err != nil { // texts and numbers have none
		return
	}
	send(w, status, "application/json", append(b, '\n'))
}

func refuseFor(w http.ResponseWriter, err error) {
	status, answer := refusal(err)
	refuse(w, status, answer)
}

// send writes an answer. A client that reads too slowly gets a part of it.
func send(w http.ResponseWriter, status int, kind string, text []byte) {
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.Copy(w, bytes.NewReader(text)) // the client that has gone needs no answer
}
