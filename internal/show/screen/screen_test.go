// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"
)

// TestScreen presses keys on a table that is longer than the terminal.
func TestScreen(t *testing.T) {
	taken := 0
	s := New(lipgloss.NewRenderer(&bytes.Buffer{}), time.Second, View{
		Lines: func(th Theme, width, _ int) []Line {
			lines := []Line{th.TitleLine("title", "right", width), {th.Plain, ""}, {th.Head, "head"}}
			for _, name := range strings.Fields("one two three four five six") {
				lines = append(lines, Line{th.Plain, name})
			}
			return lines
		},
		Fixed: 3, Look: func() (func(), error) { return func() { taken++ }, nil }, Keys: "q quit",
	})
	shows := func(want ...string) {
		t.Helper()
		view := s.View()
		for _, w := range want {
			not, gone := strings.CutPrefix(w, "!")
			if gone == strings.Contains(view, not) {
				t.Errorf("%q in\n%s", w, view)
			}
		}
		if n := strings.Count(view, "\n") + 1; view != "" && n != s.height {
			t.Errorf("%d lines on a terminal of %d", n, s.height)
		}
	}
	press := func(key string) tea.Cmd {
		_, cmd := s.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(key)})
		return cmd
	}
	shows("!title")
	s.Update(tea.WindowSizeMsg{Width: 40, Height: 7})
	shows("title"+strings.Repeat(" ", 30)+"right", "head", "one", "three", "!four", "q quit")
	press("j")
	shows("head", "!one", "two", "four")
	for range 20 {
		press("j")
	}
	shows("head", "four", "six", "!three")
	press("k")
	shows("five", "!six")
	s.Update(tea.WindowSizeMsg{Width: 40, Height: 20})
	shows("one", "six")
	s.Update(sampled{take: func() { taken++ }})
	press("p")
	shows("PAUSED")
	s.Update(sampled{take: func() { taken++ }})
	if taken != 1 {
		t.Errorf("%d samples were taken, want 1", taken)
	}
	s.Update(sampled{err: errors.New("no figures")})
	shows("no figures", "!q quit")
	if press("q") == nil {
		t.Error("q does not quit")
	}
}

// TestViewKeys has a view that handles keys itself, among them one that otherwise quits, and that draws the size it is given.
func TestViewKeys(t *testing.T) {
	helping, pressed := true, ""
	s := New(lipgloss.NewRenderer(&bytes.Buffer{}), time.Second, View{
		Lines: func(th Theme, width, height int) []Line {
			return []Line{{th.Plain, fmt.Sprintf("%d x %d, and what is too wide", width, height)}, {th.Plain, "second"}, {th.Plain, "third"}}
		},
		Press: func(key string) bool {
			pressed += key
			if key == "esc" && helping {
				helping = false
				return true
			}
			return key == "down"
		},
		Keys: "keys",
	})
	s.Resize(10, 3)
	if got, want := s.View(), "10 x 2, an\nsecond\nkeys"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if s.Press("down") || s.Press("esc") || !s.Press("esc") || pressed != "downescesc" {
		t.Errorf("pressed %s", pressed)
	}
	s.Press(" ")
	if got, want := s.View(), "10 x 2, an\nsecond\nPAUSED   k"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.Resize(10, 1)
	if got := s.View(); got != "PAUSED   k" {
		t.Errorf("one line: %q", got)
	}
}

// TestNarrowKeys wants whole keys in the last line, the first ones first.
func TestNarrowKeys(t *testing.T) {
	s := New(lipgloss.NewRenderer(&bytes.Buffer{}), time.Second, View{
		Lines: func(Theme, int, int) []Line { return nil }, Keys: "q quit   ? help   up, down move",
	})
	for width, want := range map[int]string{40: "q quit   ? help   up, down move", 30: "q quit   ? help", 14: "q quit", 3: "q q"} {
		s.Resize(width, 1)
		if got := s.View(); got != want {
			t.Errorf("%d cells: %q, want %q", width, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		interval time.Duration
		count    int
		fail     string
	}{
		{time.Second, 0, ""},
		{minInterval, 3, ""},
		{minInterval - 1, 0, "usage: interval 99.999999ms: use 100ms or more"},
		{0, 0, "usage: interval 0s: use 100ms or more"},
		{time.Second, -1, "usage: count -1: use 1 or more"},
	} {
		if err := Check(tc.interval, tc.count); err == nil && tc.fail != "" || err != nil && err.Error() != tc.fail {
			t.Errorf("every %v, %d times: %v, want %q", tc.interval, tc.count, err, tc.fail)
		}
	}
}

func TestEvery(t *testing.T) {
	n := 0
	if err := Every(t.Context(), time.Millisecond, 3, func() error { n++; return nil }); err != nil || n != 3 {
		t.Errorf("looked %d times, want 3; %v", n, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := Every(ctx, time.Millisecond, 0, func() error { cancel(); return nil }); err != nil {
		t.Errorf("ctx ends: %v", err)
	}
	broken := errors.New("broken")
	if err := Every(t.Context(), time.Millisecond, 0, func() error { return broken }); err != broken {
		t.Errorf("got %v, want %v", err, broken)
	}
}
