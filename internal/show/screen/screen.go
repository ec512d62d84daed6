// SPDX-License-Identifier: Apache-2.0

// Package screen shows a live table on a terminal. It takes samples at an interval and draws a view of them, and it has keys
// to pause, to scroll and to quit.
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

// Theme has the styles of a live table. They are distinguishable without colors.
type Theme struct{ Plain, Title, Head, Selected, Quiet, Bad lipgloss.Style }

func newTheme(r *lipgloss.Renderer) Theme {
	s := r.NewStyle
	return Theme{
		Plain: s(), Title: s().Bold(true), Head: s().Underline(true), Selected: s().Reverse(true), Quiet: s().Faint(true),
		Bad: s().Foreground(lipgloss.Color("1")).Bold(true),
	}
}

// Line is one line of the screen.
type Line struct {
	Style lipgloss.Style
	Text  string
}

// TitleLine returns a line with one text at the left end and one at the right end.
func (t Theme) TitleLine(left, right string, width int) Line {
	return Line{t.Title, left + strings.Repeat(" ", max(width-len(left)-len(right), 2)) + right}
}

// View is what a screen shows.
type View struct {
	// Lines returns the lines of the view for a terminal of width cells and height lines. The screen cuts lines that are
	// longer.
	Lines func(t Theme, width, height int) []Line
	// Fixed is the number of lines at the top that stay while the others scroll. With 0 the view does not scroll.
	Fixed int
	// FixedNow returns what to take in the place of Fixed for the lines that Lines has returned last. It may be nil.
	FixedNow func() int
	// Look takes a sample. It runs on a goroutine of its own and must not change the view; take, which does, is called later
	// and only if the screen is not paused.
	Look func() (take func(), err error)
	// Press handles a key and tells whether the view has a use for it. It may be nil.
	Press func(key string) bool
	// Keys is the text of the last line, which explains the keys, with three spaces between them. A narrow terminal shows the
	// first ones.
	Keys string
}

// Screen is the state of the live table.
type Screen struct {
	interval time.Duration
	theme    Theme
	view     View
	err      error
	paused   bool
	// offset is the number of lines that are scrolled away.
	offset int
	// width and height are the size of the terminal in cells and lines, 0 until they are known.
	width, height int
}

// New returns a screen that takes a sample every interval.
func New(r *lipgloss.Renderer, interval time.Duration, v View) *Screen {
	return &Screen{interval: interval, theme: newTheme(r), view: v}
}

// Run shows a view on a terminal until ctx ends or the user quits.
func Run(ctx context.Context, terminal *os.File, interval time.Duration, v View) error {
	s := New(lipgloss.NewRenderer(terminal), interval, v)
	p := tea.NewProgram(s, tea.WithContext(ctx), tea.WithAltScreen(), tea.WithOutput(terminal), tea.WithoutSignalHandler())
	_, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// sampled is the message with the result of View.Look.
type sampled struct {
	take func()
	err  error
}

// Init implements tea.Model.
func (s *Screen) Init() tea.Cmd { return s.lookLater() }

func (s *Screen) lookLater() tea.Cmd {
	return tea.Tick(s.interval, func(time.Time) tea.Msg {
		take, err := s.view.Look()
		return sampled{take, err}
	})
}

// Update implements tea.Model.
func (s *Screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.Resize(msg.Width, msg.Height)
	case sampled:
		s.Sampled(msg.take, msg.err)
		return s, s.lookLater()
	case tea.KeyMsg:
		if s.Press(msg.String()) {
			return s, tea.Quit
		}
	}
	return s, nil
}

// Resize sets the size of the terminal, in cells and lines.
func (s *Screen) Resize(width, height int) { s.width, s.height = width, height }

// Sampled handles the result of View.Look: it calls take unless the screen is paused, or shows the error.
func (s *Screen) Sampled(take func(), err error) {
	s.err = err
	if err == nil && !s.paused {
		take()
	}
}

// Press handles a key and tells whether the user quits.
func (s *Screen) Press(key string) (quit bool) {
	if s.view.Press != nil && s.view.Press(key) {
		return false
	}
	switch key {
	case "q", "ctrl+c", "esc":
		return true
	case "up", "k":
		s.offset = max(s.offset-1, 0)
	case "down", "j":
		s.offset++
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
	foot := Line{s.theme.Quiet, s.keys()}
	if s.err != nil {
		foot = Line{s.theme.Bad, s.err.Error()}
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

// keys returns the text of the last line with as many keys as there is room for, at least one.
func (s *Screen) keys() string {
	paused := ""
	if s.paused {
		paused = "PAUSED" + keyGap
	}
	keys := strings.Split(s.view.Keys, keyGap)
	for len(keys) > 1 && len(paused)+len(strings.Join(keys, keyGap)) > s.width {
		keys = keys[:len(keys)-1]
	}
	return paused + strings.Join(keys, keyGap)
}

// keyGap separates the keys in View.Keys.
const keyGap = "   "

// scroll returns the lines that are visible: the fixed ones, and those at the offset as far as there is room.
func (s *Screen) scroll(lines []Line, room int) []Line {
	head := s.view.Fixed
	if s.view.FixedNow != nil {
		head = s.view.FixedNow()
	}
	head = min(head, len(lines))
	if head == 0 || len(lines) <= room || head >= room {
		s.offset = 0
		return lines[:min(len(lines), room)]
	}
	s.offset = min(s.offset, len(lines)-room)
	return append(lines[:head:head], lines[head+s.offset:s.offset+room]...)
}
