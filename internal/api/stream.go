// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/capture"
	"culvert/internal/events"
	"culvert/internal/filter/pcap"
)

// Paths of answers that do not end by themselves.
const (
	EventsPath  = "/v1/events"
	CapturePath = "/v1/capture"
)

// mostStreams is how many clients may read events from a socket at a time.
const mostStreams = 8

// streamTime is how long a client may read nothing of what is written to it. It is a variable for tests.
var streamTime = time.Minute

// captureParameters are the flags of 'culvert capture'.
var captureParameters = []Parameter{
	{Name: "expression", What: "One of pcap-filter(7).", Kind: textKind},
	{Name: "interface", What: "Packets that come in or go out by this interface. May be repeated.", Kind: listKind},
	{Name: "in", What: "Only frames that come in.", Kind: flagKind},
	{Name: "out", What: "Only frames that go out.", Kind: flagKind},
	{Name: "verdict", What: "Only packets with the verdict pass, punt, drop or fwd.", Kind: textKind},
	{Name: "reason", What: "Only packets with this reason.", Kind: textKind},
	{Name: "stage", What: "Only packets with a reason of this stage.", Kind: textKind},
	{Name: "snap", What: "At most so many bytes of a frame.", Least: 1, Most: capture.MaxSnap, Usual: capture.MaxSnap},
	{Name: "n", What: "End after so many packets, 0 for never.", Least: 0, Most: 1 << 30},
	{Name: "sample", What: "One of so many packets, at random.", Least: 1, Most: 1 << 30, Usual: 1},
}

// errStreams refuses clients that are too many.
var errStreams = fmt.Errorf("%d clients read events already: try again when one has ended", mostStreams)

// endTime is streamTime when the process is about to end.
const endTime = time.Second

// stream writes to a client as long as it reads.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController

	mu   sync.Mutex
	wait time.Duration // of a write
}

// newStream returns a stream. When ctx has ended it waits for its client no longer than endTime, also in a write that has begun. The
// caller calls done before it is done with w.
func newStream(ctx context.Context, w http.ResponseWriter) (s *stream, done func()) {
	s = &stream{w: w, control: http.NewResponseController(w), wait: streamTime}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		s.mu.Lock()
		s.wait = endTime
		s.mu.Unlock()
		_ = s.extend() // a write that is not ended here is at streamTime
	})
	return s, func() {
		if !stop() {
			<-ended
		}
	}
}

// extend sets the time by which the client has to have read on.
func (s *stream) extend() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.control.SetWriteDeadline(time.Now().Add(s.wait)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// begin writes the head of the answer.
func (s *stream) begin(kind string) {
	s.w.Header().Set("Content-Type", kind)
	s.w.Header().Set("X-Content-Type-Options", "nosniff")
	s.w.WriteHeader(http.StatusOK)
	_ = s.control.Flush()
}

// Write implements io.Writer.
func (s *stream) Write(b []byte) (int, error) {
	if err := s.extend(); err != nil {
		return 0, err
	}
	n, err := s.w.Write(b)
	if err == nil {
		err = s.control.Flush()
	}
	return n, err
}

// otherThanLeft returns an error without what says that the client has gone. One that reads nothing is another matter.
func otherThanLeft(err error) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		var rest []error
		for _, one := range all.Unwrap() {
			rest = append(rest, otherThanLeft(one))
		}
		return errors.Join(rest...)
	}
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}

// events writes events, each in a line of JSON, until the client goes or ctx ends.
func (h *server) events(ctx context.Context, w http.ResponseWriter) {
	select {
	case h.streams <- struct{}{}:
		defer func() { <-h.streams }()
	default:
		refuse(w, http.StatusServiceUnavailable, Error{Error: errStreams.Error()})
		return
	}
	r := h.source.Events.Read()
	defer r.Close()
	out, done := newStream(ctx, w)
	defer done()
	out.begin("application/x-ndjson")
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-r.Events():
			text, err := json.Marshal(e)
			if err != nil { // a value that JSON does not have
				text, err = json.Marshal(events.Event{Time: e.Time, Event: e.Event, Level: e.Level, Text: e.Text})
			}
			if err == nil {
				_, err = out.Write(append(text, '\n'))
			}
			if err != nil {
				return
			}
		}
	}
}

// capture writes packets as a pcapng file, until the client goes, ctx ends, or there were enough.
func (h *server) capture(ctx context.Context, w http.ResponseWriter, q url.Values, by string) {
	if _, err := pcap.Compile(q.Get("expression")); err != nil {
		_, answer := refusal(err)
		refuse(w, http.StatusBadRequest, answer)
		return
	}
	begun, captured, dropped := false, 0, uint64(0)
	out, done := newStream(ctx, w)
	defer done()
	o := capture.Options{
		On: h.source.Name, Interfaces: q["interface"], In: q.Get("in") == "true", Out: q.Get("out") == "true", Verdict: q.Get("verdict"), Reason: q.Get("reason"),
		Stage: q.Get("stage"), Snap: number(q, "snap"), Count: number(q, "n"), Sample: number(q, "sample"), Write: "-", Expression: q.Get("expression"),
		Stdout: out, Served: true,
		Begun: func() {
			begun = true
			h.source.LogCapture("a program captures packets", nil, "by", by)
			out.begin("application/vnd.tcpdump.pcap")
		},
		Ended: func(packets int, lost uint64) { captured, dropped = packets, lost },
	}
	err := capture.Run(ctx, o)
	switch {
	case begun:
		// A client that goes is how a capture ends.
		if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil // what was left for it when it went
		}
		h.source.LogCapture("a program captures no more packets", otherThanLeft(err), "by", by, "packets", captured, "lost", dropped)
	case errors.Is(err, capture.ErrBusy):
		_, answer := refusal(err)
		refuse(w, http.StatusConflict, answer)
	case err != nil:
		status, answer := refusal(err)
		if status == http.StatusInternalServerError {
			status = http.StatusUnprocessableEntity
		}
		answer.Error = inParameters(answer.Error)
		refuse(w, status, answer)
	}
}

// flagWithValue matches flags of the command line in what is said of a capture.
var flagWithValue = regexp.MustCompile(`(^|[ ,(])(?:--([a-z]+)|-(i|s|n))( [^ :]+)?`)

// inParameters returns a text about a capture with parameters in place of flags: verdict=x for --verdict x.
func inParameters(text string) string {
	return flagWithValue.ReplaceAllStringFunc(text, func(s string) string {
		m := flagWithValue.FindStringSubmatch(s)
		name := m[2] + map[string]string{"i": "interface", "s": "snap", "n": "n"}[m[3]]
		if !slices.ContainsFunc(captureParameters, func(p Parameter) bool { return p.Name == name }) {
			return s
		}
		return m[1] + name + strings.Replace(m[4], " ", "=", 1)
	})
}

// number returns a whole number of a query that was checked.
func number(q url.Values, name string) int {
	for _, p := range captureParameters {
		if p.Name == name {
			n, _ := p.value(q)
			return n
		}
	}
	return 0
}
