// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"culvert/internal/edit"
)

// Limits of requests that change something.
const (
	// MostControls is how many connections of root are to be served at a time. Changes wait for each other on theirs.
	MostControls = 1024
	// smallBody is how long a request may be that is read beside others. One that is longer is read alone.
	smallBody = 1 << 20
	// largestBody bounds requests: entries of sets, some millions of them.
	largestBody = 256 << 20
)

// Times of requests that change something. They are variables for tests.
var (
	// bodyTime is how long a client may take for the next part of its request.
	bodyTime = 5 * time.Second
	// turnTime is how long a change waits for those before it.
	turnTime = time.Minute
)

// WordsHeader is the header by which the command line asks for texts in its own words, FlagWords, as --all. Other clients get the names of
// members.
const (
	WordsHeader = "Culvert-Words"
	FlagWords   = "flags"
)

// Control answers requests of root, which may change something.
type Control struct {
	show *server
	// turn is held by the change that is carried out, large by the request that is read alone.
	turn, large chan struct{}
	work        sync.WaitGroup
}

// NewControl returns a handler of all requests.
func NewControl(s *Source) *Control {
	return &Control{show: newServer(s, slices.Concat(Paths(), Controls(), Changes())), turn: make(chan struct{}, 1), large: make(chan struct{}, 1)}
}

// Wait waits until no change is being carried out.
func (c *Control) Wait() { c.work.Wait() }

// ReloadPath is where a process is asked to read its configuration again.
const ReloadPath = "/v1/reload"

// Controls returns the paths that show something to root alone.
func Controls() []Path {
	return []Path{{
		Path: CapturePath, What: "packets with their verdicts, as a pcapng file; it ends when the client does", Verb: "culvert capture --on NAME -w -",
		Content: "application/vnd.tcpdump.pcap", Parameters: captureParameters,
	}}
}

// Changes returns the paths that change something, sorted. Only root has them.
func Changes() (all []Path) {
	for _, v := range edit.Verbs() {
		all = append(all, Path{
			Path: "/v1/" + strings.ReplaceAll(v.Words, " ", "/"), Method: http.MethodPost, What: v.What, Verb: "culvert " + v.Words + " --on NAME -j",
			Kind: v.Kind, Request: v.New(), Answer: edit.Result{}, change: v,
		})
	}
	return append(all, Path{
		Path: ReloadPath, Method: http.MethodPost, What: "read the configuration again", Verb: "culvert reload --on NAME -j",
		Request: Reload{}, Answer: Reloaded{},
	})
}

// ServeHTTP implements http.Handler.
func (c *Control) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, ok := c.show.paths[r.URL.Path]
	if !ok || p.Method == "" {
		c.show.ServeHTTP(w, r)
		return
	}
	if r.Method != p.Method {
		w.Header().Set("Allow", p.Method)
		refuse(w, http.StatusMethodNotAllowed, Error{Error: fmt.Sprintf("%.20q: %s changes something: use %s", r.Method, p.Path, p.Method)})
		return
	}
	if _, err := p.query(r.URL); err != nil {
		refuseFor(w, err)
		return
	}
	c.work.Add(1)
	defer c.work.Done()
	answer, err := c.change(w, r, p)
	if err != nil {
		refuseFor(w, err)
		return
	}
	text, err := json.Marshal(answer)
	if err != nil {
		refuseFor(w, err)
		return
	}
	send(w, http.StatusOK, "application/json", append(text, '\n'))
}

// change reads a request and carries it out.
func (c *Control) change(w http.ResponseWriter, r *http.Request, p Path) (answer any, err error) {
	defer func() {
		if what := recover(); what != nil {
			c.show.source.LogError("a change failed", "path", p.Path, "panic", what, "stack", string(debug.Stack()))
			answer, err = nil, errors.New("a mistake in culvert: its log has more")
		}
	}()
	body, err := c.body(w, r)
	if err != nil {
		return nil, err
	}
	// A client that goes away leaves a whole change, and only the client bounds how long it waits.
	ctx := context.WithoutCancel(r.Context())
	if p.change.New == nil {
		var q Reload
		if err := decode(body, &q); err != nil {
			return nil, err
		}
		return c.show.source.Reload(ctx, q, r.RemoteAddr)
	}
	q := p.change.New()
	if err := decode(body, q); err != nil {
		return nil, err
	}
	words := func(text string) string { return edit.InMembers(q, text) }
	if r.Header.Get(WordsHeader) == FlagWords {
		words = func(text string) string { return text }
	}
	if err := q.Check(); err != nil {
		_, answer := refusal(err)
		return nil, &RefusedError{http.StatusBadRequest, Error{Error: words(answer.Error)}}
	}
	waiting, cancel := context.WithTimeout(r.Context(), turnTime)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-waiting.Done():
		return nil, errBusy
	}
	// A reload comes before the changes that wait.
	c.show.source.Changing.Lock()
	defer c.show.source.Changing.Unlock()
	result, err := c.show.source.do(ctx, q)
	if err == nil {
		c.show.source.LogChange(p.change.Words, result.Done, r.RemoteAddr)
		for n, note := range result.Notes {
			result.Notes[n] = words(note)
		}
		return result, nil
	}
	status, refused := refusal(err)
	if status == http.StatusInternalServerError {
		status = http.StatusUnprocessableEntity
	}
	return nil, &RefusedError{status, Error{Error: words(refused.Error)}}
}

// do carries a request out on the data plane.
func (s *Source) do(ctx context.Context, q edit.Request) (*edit.Result, error) {
	inst, err := edit.Open(q, s.Name)
	if err != nil {
		return nil, err
	}
	defer inst.Close()
	return edit.Do(ctx, q, inst, nil)
}

// body reads the body of a request.
func (c *Control) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); r.Header.Get("Content-Type") != "" && (err != nil || kind != "application/json") {
		return nil, &RefusedError{http.StatusUnsupportedMediaType, Error{Error: "a request is JSON: say so with Content-Type: application/json (curl --json)"}}
	}
	if r.ContentLength > largestBody {
		return nil, errTooLarge
	}
	control := http.NewResponseController(w)
	var all bytes.Buffer
	part := make([]byte, smallBody/4)
	for {
		if err := control.SetReadDeadline(time.Now().Add(bodyTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return nil, err
		}
		n, err := r.Body.Read(part)
		if all.Len() <= smallBody && all.Len()+n > smallBody {
			ctx, cancel := context.WithTimeout(r.Context(), turnTime)
			defer cancel()
			select {
			case c.large <- struct{}{}:
				defer func() { <-c.large }()
			case <-ctx.Done():
				return nil, errBusy
			}
			all.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead)
		}
		if all.Len()+n > largestBody {
			return nil, errTooLarge
		}
		all.Write(part[:n])
		switch {
		case errors.Is(err, io.EOF):
			_ = control.SetReadDeadline(time.Time{})
			_ = control.SetWriteDeadline(time.Time{})
			return all.Bytes(), nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, &RefusedError{http.StatusRequestTimeout, Error{Error: fmt.Sprintf("the request does not go on: its next part has to come within %v", bodyTime)}}
		case err != nil:
			return nil, &requestError{"reading the request: " + err.Error()}
		}
	}
}

var errTooLarge = &RefusedError{http.StatusRequestEntityTooLarge,
	Error{Error: fmt.Sprintf("the request has more than %d MiB: take several, or a file and a reload", largestBody>>20)}}

// decode reads a request. Members that it does not have are refused, and so are those that lack and what follows it. No body is no request:
// a client that has forgotten it would delete all rules.
func decode(body []byte, to any) error {
	switch text := bytes.TrimSpace(body); {
	case len(text) == 0:
		return &requestError{"the request has no body: it is no JSON object, which is {} for a request without members"}
	case text[0] != '{':
		return &requestError{"the request is no JSON object"}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(to)
	if err == nil && d.More() {
		err = errors.New("something follows the object")
	}
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return checkMembers(body, to)
	case errors.As(err, &kind):
		member := kind.Field[strings.LastIndexByte(kind.Field, '.')+1:]
		return &requestError{fmt.Sprintf("%s is a JSON %s: a value of type %s is wanted", member, kind.Value, kind.Type)}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &requestError{"the request is cut off: it is no whole JSON object"}
	}
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return &requestError{"the request has no member " + strings.Trim(name, `"`) + ": api.yaml has those that there are"}
	}
	return &requestError{"the request cannot be read: " + strings.TrimPrefix(err.Error(), "json: ")}
}
