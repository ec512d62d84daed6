// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"

	_ "culvert/internal/show/noquery"
)

// watchScreen shows the live table on a terminal.
func watchScreen(ctx context.Context, o WatchOptions, first sample, terminal *os.File) error {
	m := newScreen(o, first, lipgloss.NewRenderer(terminal))
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithAltScreen(), tea.WithOutput(terminal),
		tea.WithoutSignalHandler())
	_, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil // told to end
	}
	return err
}

// screen is the state of the live table.
type screen struct {
	opts  WatchOptions
	theme theme
	// last and now are the two latest samples, flows the rates between them unless paused.
	last, now sample
	flows     []flow
	started   time.Time
	chosen    flowKey
	err       error
	paused    bool
	help      bool
	// sentences tells whether each reason is explained.
	sentences bool
	// width and height are the terminal's in cells; 0 until it has told.
	width, height int
}

// looked carries a new sample.
type looked struct {
	sample sample
	err    error
}

func newScreen(o WatchOptions, first sample, r *lipgloss.Renderer) *screen {
	s := &screen{opts: o, theme: newTheme(r), now: first, started: first.at, sentences: o.Verbose}
	s.take(first)
	return s
}

// Init implements tea.Model.
func (s *screen) Init() tea.Cmd { return s.lookLater() }

func (s *screen) lookLater() tea.Cmd {
	return tea.Tick(s.opts.Interval, func(time.Time) tea.Msg {
		now, err := s.opts.look()
		return looked{now, err}
	})
}

// Update implements tea.Model.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case looked:
		s.err = msg.err
		if msg.err == nil {
			s.take(msg.sample)
		}
		return s, s.lookLater()
	case tea.KeyMsg:
		return s, s.press(msg.String())
	}
	return s, nil
}

// take makes a sample the latest one.
func (s *screen) take(now sample) {
	s.last, s.now = s.now, now
	if s.paused {
		return
	}
	s.flows = flows(s.last, s.now)
	if s.chosenIndex() < 0 && len(s.flows) > 0 {
		s.chosen = s.flows[0].key
	}
}

// chosenIndex is where the chosen interface is in flows, -1 if it is gone.
func (s *screen) chosenIndex() int {
	return slices.IndexFunc(s.flows, func(f flow) bool { return f.key == s.chosen })
}

func (s *screen) press(key string) tea.Cmd {
	switch key {
	case "q", "ctrl+c", "esc":
		if s.help && key == "esc" {
			s.help = false
			return nil
		}
		return tea.Quit
	case "up", "k", "shift+tab":
		s.choose(-1)
	case "down", "j", "tab":
		s.choose(1)
	case "p", " ":
		s.paused = !s.paused
	case "v":
		s.sentences = !s.sentences
	case "?", "h":
		s.help = !s.help
	}
	return nil
}

// choose moves the choice on, around the ends.
func (s *screen) choose(by int) {
	if n := len(s.flows); n > 0 {
		s.chosen = s.flows[(max(s.chosenIndex(), 0)+by+n)%n].key
	}
}
