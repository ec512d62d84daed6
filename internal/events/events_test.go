// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestHandler has messages in the log, events, or both.
func TestHandler(t *testing.T) {
	var log bytes.Buffer
	hub := NewHub()
	r := hub.Read()
	defer r.Close()
	l := slog.New(Handler(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}), hub)).With("a", 1)
	l.Debug("not seen")
	l.Info("backend is up", "backend", "10.0.0.1", "err", errors.New("x"), "on", []string{"b", "c"}, "took", time.Second)
	l.Warn("something else")
	l.Log(t.Context(), Level, "a stage is ready", "stage", "lb")
	var got []string
	for range 3 {
		e := <-r.Events()
		e.Time = time.Time{}
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.Replace(string(b), `"time":"0001-01-01T00:00:00Z",`, "", 1))
	}
	for n, want := range []string{
		`{"event":"backend-up","level":"info","text":"backend is up","fields":{"a":1,"backend":"10.0.0.1","err":"x","on":["b","c"],"took":"1s"}}`,
		`{"event":"log","level":"warn","text":"something else","fields":{"a":1}}`,
		`{"event":"stage-up","level":"info","text":"a stage is ready","fields":{"a":1,"stage":"lb"}}`,
	} {
		if got[n] != want {
			t.Errorf("event %d: %s, want %s", n, got[n], want)
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "something else") {
		t.Errorf("the log has %s", text)
	}
	if len(r.Events()) > 0 {
		t.Errorf("another event: %+v", <-r.Events())
	}
}

// TestSlowReader has a reader that stops reading. It is told how many events it has lost, and nobody waits for it.
func TestSlowReader(t *testing.T) {
	hub := NewHub()
	slow, other := hub.Read(), hub.Read()
	defer slow.Close()
	for range waiting + 7 {
		hub.Emit(Event{Event: "x"})
		<-other.Events()
	}
	other.Close()
	for range waiting {
		if e := <-slow.Events(); e.Event != "x" {
			t.Fatalf("%+v", e)
		}
	}
	hub.Emit(Event{Event: "y"})
	if e := <-slow.Events(); e.Event != KindLost || e.Lost != 7 {
		t.Errorf("%+v, want that 7 were lost", e)
	}
	if e := <-slow.Events(); e.Event != "y" {
		t.Errorf("%+v, want y", e)
	}
}

// TestKindsAreLogged looks for each message with a kind of its own in the sources.
func TestKindsAreLogged(t *testing.T) {
	var sources strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, "events/kinds.go") {
			var b []byte
			b, err = os.ReadFile(path)
			sources.Write(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if !strings.Contains(sources.String(), `"`+k.text) {
			t.Errorf("nothing logs %q", k.text)
		}
		if kindOf(k.text+": more") != k.kind {
			t.Errorf("%q is of kind %s", k.text, kindOf(k.text))
		}
	}
}
