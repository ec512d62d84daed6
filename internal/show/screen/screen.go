// SPDX-License-Identifier: Apache-2.0

// Package screen is the live table that commands show on a terminal: it looks again and again, draws what a view makes of
// it, holds it, scrolls, and ends.
package screen

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"

	_ "culvert/internal/show/noquery"
)

// Theme holds the styles of a live table; without colours it is still readable.
type Theme struct{ Plain, Title, Head, Chosen, Quiet, Bad lipgloss.Style }

func newTheme(r *lipgloss.Renderer) Theme {
	s := r.NewStyle
	return Theme{
		Plain: s(), Title: s().Bold(true), Head: s().Underline(true), Chosen: s().Reverse(true), Quiet: s().Faint(true),
		Bad: s().Foreground(lipgloss.Color("1")).Bold(true),
	}
}

// Line is one line of the screen.
type Line struct {
	Style lipgloss.Style
	Text  string
}

// TitleLine has something at either end.
func (t Theme) TitleLine(left, right string, width int) Line {
	return Line{t.Title, left + strings.Repeat(" ", max(width-len(left)-len(right), 2)) + right}
}

// View is what a screen shows.
type View struct {
	// Lines draws into so many cells and lines. What is too wide is cut.
	Lines func(t Theme, width, height int) []Line
	// Fixed are the first lines, which stay while the others scroll, 0 for a view that always fits.
	Fixed int
	// Look reads anew, and gives what puts the new figures in place.
	Look func() (take func(), err error)
	// Press is told of each key, and says whether the view has one for it; nil is for a view that has none.
	Press func(key string) bool
	// Keys says what keys do, in the last line.
	Keys string
}

// Screen is the state of the live table.
type Screen struct {
	interval time.Duration
	theme    Theme
	view     View
	err      error
	paused   bool
	// at is how far it is scrolled. width and height are the terminal's in cells, 0 until it has told.
	at, width, height int
}

// New makes a screen that looks once an interval.
func New(r *lipgloss.Renderer, interval time.Duration, v View) *Screen {
	return &Screen{interval: interval, theme: newTheme(r), view: v}
}

// Run shows a view on a terminal until ctx ends or the user leaves.
func Run(ctx context.Context, terminal *os.File, interval time.Duration, v View) error {
	s := New(lipgloss.NewRenderer(terminal), interval, v)
	p := tea.NewProgram(s, tea.WithContext(ctx), tea.WithAltScreen(), tea.WithOutput(terminal), tea.WithoutSignalHandler())
	_, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil // told to end
	}
	return err
}

type looked struct {
	take func()
	err  error
}

// Init implements tea.Model.
func (s *Screen) Init() tea.Cmd { return s.lookLater() }

func (s *Screen) lookLater() tea.Cmd {
	return tea.Tick(s.interval, func(time.Time) tea.Msg {
		take, err := s.view.Look()
		return looked{take, err}
	})
}

// Update implements tea.Model.
func (s *Screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.Resize(msg.Width, msg.Height)
	case looked:
		s.Looked(msg.take, msg.err)
		return s, s.lookLater()
	case tea.KeyMsg:
		if s.Press(msg.String()) {
			return s, tea.Quit
		}
	}
	return s, nil
}

// Resize tells how large the terminal is, in cells.
func (s *Screen) Resize(width, height int) { s.width, s.height = width, height }

// Looked takes what a look has found, unless the figures are held.
func (s *Screen) Looked(take func(), err error) {
	s.err = err
	if err == nil && !s.paused {
		take()
	}
}

// Press does what a key is for, and tells whether that is to leave.
func (s *Screen) Press(key string) (leave bool) {
	if s.view.Press != nil && s.view.Press(key) {
		return false
	}
	switch key {
	case "q", "ctrl+c", "esc":
		return true
	case "up", "k":
		s.at = max(s.at-1, 0)
	case "down", "j":
		s.at++
	case "p", " ":
		s.paused = !s.paused
	}
	return false
}

// View implements tea.Model.
func (s *Screen) View() string {
	if s.width == 0 || s.height == 0 {
		return ""
	}
	foot := Line{s.theme.Quiet, s.view.Keys}
	switch {
	case s.err != nil:
		foot = Line{s.theme.Bad, s.err.Error()}
	case s.paused:
		foot.Text = "PAUSED   " + foot.Text
	}
	room := s.height - 1
	lines := s.scroll(s.view.Lines(s.theme, s.width, room), room)
	for len(lines) < room {
		lines = append(lines, Line{s.theme.Plain, ""})
	}
	lines = append(lines, foot)
	out := make([]string, len(lines))
	for n, l := range lines {
		text := []rune(l.Text)
		out[n] = l.Style.Render(string(text[:min(len(text), s.width)]))
	}
	return strings.Join(out, "\n")
}

// scroll returns the lines that there is room for.
func (s *Screen) scroll(lines []Line, room int) []Line {
	head := min(s.view.Fixed, len(lines))
	if head == 0 || len(lines) <= room || head >= room {
		s.at = 0
		return lines[:min(len(lines), room)]
	}
	s.at = min(s.at, len(lines)-room)
	return append(lines[:head:head], lines[head+s.at:head+s.at+room-head]...)
}
