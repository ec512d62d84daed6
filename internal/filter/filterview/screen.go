// SPDX-License-Identifier: Apache-2.0

package filterview

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

// theme holds the styles of a live table; without colours it is still readable.
type theme struct{ plain, title, head, quiet, bad lipgloss.Style }

func newTheme(r *lipgloss.Renderer) theme {
	s := r.NewStyle
	return theme{
		plain: s(), title: s().Bold(true), head: s().Underline(true), quiet: s().Faint(true),
		bad: s().Foreground(lipgloss.Color("1")).Bold(true),
	}
}

// styled is one line of the screen.
type styled struct {
	style lipgloss.Style
	text  string
}

// title is a line with something at either end.
func title(t theme, left, right string, width int) styled {
	return styled{t.title, left + strings.Repeat(" ", max(width-len(left)-len(right), 2)) + right}
}

// screen is a live table of lines: what they are is up to the view.
type screen struct {
	interval time.Duration
	theme    theme
	view     func(t theme, width int) []styled
	// look reads anew, and gives what puts the new figures in place.
	look   func() (take func(), err error)
	err    error
	paused bool
	// at is how far it is scrolled. width and height are the terminal's, 0 until it has told.
	at, width, height int
}

// fixed are the first lines, which do not scroll: title, blank, head.
const fixed = 3

func runScreen(ctx context.Context, terminal *os.File, interval time.Duration, view func(theme, int) []styled,
	look func() (func(), error)) error {
	s := &screen{interval: interval, theme: newTheme(lipgloss.NewRenderer(terminal)), view: view, look: look}
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
func (s *screen) Init() tea.Cmd { return s.lookLater() }

func (s *screen) lookLater() tea.Cmd {
	return tea.Tick(s.interval, func(time.Time) tea.Msg {
		take, err := s.look()
		return looked{take, err}
	})
}

// Update implements tea.Model.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case looked:
		s.err = msg.err
		if msg.err == nil && !s.paused {
			msg.take()
		}
		return s, s.lookLater()
	case tea.KeyMsg:
		switch msg.String() {
		case "q", "ctrl+c", "esc":
			return s, tea.Quit
		case "up", "k":
			s.at = max(s.at-1, 0)
		case "down", "j":
			s.at++
		case "p", " ":
			s.paused = !s.paused
		}
	}
	return s, nil
}

// View implements tea.Model.
func (s *screen) View() string {
	if s.width == 0 || s.height == 0 {
		return ""
	}
	lines := s.view(s.theme, s.width)
	foot := styled{s.theme.quiet, "q quit   up, down scroll   p pause"}
	switch {
	case s.err != nil:
		foot = styled{s.theme.bad, s.err.Error()}
	case s.paused:
		foot.text = "PAUSED   " + foot.text
	}
	room := max(s.height-1, 0)
	if head := min(fixed, len(lines)); len(lines) > room && head < room {
		s.at = min(s.at, len(lines)-room)
		lines = append(lines[:head:head], lines[head+s.at:]...)
	} else {
		s.at = 0
	}
	lines = lines[:min(len(lines), room)]
	for len(lines) < room {
		lines = append(lines, styled{s.theme.plain, ""})
	}
	lines = append(lines, foot)
	out := make([]string, len(lines))
	for n, l := range lines {
		text := []rune(l.text)
		out[n] = l.style.Render(string(text[:min(len(text), s.width)]))
	}
	return strings.Join(out, "\n")
}
