// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/show"
)

// progress shows the progress of a scenario. On a terminal each line replaces the one before, and steps also show what is
// being measured and the time left. Elsewhere lines are written as they are.
type progress struct {
	mu       sync.Mutex
	out      io.Writer
	scenario string
	// columns is the width of the terminal, 0 if there is none.
	columns int
	// now is the clock, a variable for tests.
	now func() time.Time
}

// newProgress shows the progress of a scenario on w.
func newProgress(w io.Writer, scenario string) *progress {
	p := &progress{out: w, scenario: scenario, now: time.Now}
	if f, ok := show.Terminal(w); ok {
		p.columns = 80
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			p.columns = int(size.Col)
		}
	}
	return p
}

// Write takes whole lines. On a terminal it shows the last one, cut to the terminal's width.
func (p *progress) Write(lines []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.columns == 0 {
		return p.out.Write(lines)
	}
	all := strings.Split(strings.TrimRight(string(lines), "\n"), "\n")
	return len(lines), p.show(p.scenario + ": " + all[len(all)-1])
}

// show replaces the line on the terminal. The last column stays free, where some terminals would begin a new line.
func (p *progress) show(line string) error {
	text := []rune(line)
	if room := p.columns - 1; len(text) > room {
		text = text[:max(room, 0)]
	}
	_, err := io.WriteString(p.out, "\r\x1b[K"+string(text))
	return err
}

// KeepLine writes a line that is not replaced by later lines on a terminal.
func KeepLine(w io.Writer, line string) {
	p, ok := w.(*progress)
	if !ok || p.columns == 0 {
		fmt.Fprintln(w, line)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = io.WriteString(p.out, "\r\x1b[K"+line+"\n")
}

// done removes the line from the terminal.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.columns > 0 {
		// An error of the terminal must not fail the measurement.
		_ = p.show("")
	}
}

// steps counts measurements, which take about the same time each, to estimate the time left.
type steps struct {
	out   io.Writer
	total int
	taken int
	start time.Time
	now   func() time.Time
	last  string
}

// NewSteps shows the progress of total measurements on w.
func NewSteps(w io.Writer, total int) *steps {
	s := &steps{out: w, total: total, now: time.Now}
	if p, ok := w.(*progress); ok {
		s.now = p.now
	}
	s.start = s.now()
	return s
}

// Begin begins a measurement, such as "round 3 of 15: redirect". Only terminals show it.
func (s *steps) Begin(what string) {
	p, ok := s.out.(*progress)
	if !ok || p.columns == 0 {
		return
	}
	if s.taken > 0 {
		left := s.now().Sub(s.start) / time.Duration(s.taken) * time.Duration(s.total-s.taken)
		what = fmt.Sprintf("%s, %s left", what, left.Round(time.Second))
	}
	if s.last != "" {
		what += " (last: " + s.last + ")"
	}
	fmt.Fprintln(p, what)
}

// End ends a measurement. It writes a line with its result, such as "round 3 of 15: redirect 3.88 Mpps", unless that is
// empty. A terminal shows only short, such as "redirect 3.88 Mpps", as the last result.
func (s *steps) End(line, short string) {
	s.taken++
	s.last = short
	if p, ok := s.out.(*progress); line != "" && (!ok || p.columns == 0) {
		fmt.Fprintln(s.out, line)
	}
}
