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

// progress shows how far a scenario is. On a terminal each line that is written replaces the one before, and steps
// add what is being measured and how long it will take; elsewhere lines are written as they are.
type progress struct {
	mu       sync.Mutex
	out      io.Writer
	scenario string
	// columns is the width of the terminal, 0 if there is none.
	columns int
	// now is the clock.
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

// Write takes lines. A line that a terminal has no room for is cut.
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
	if most := p.columns - 1; len(text) > most {
		text = text[:max(most, 0)]
	}
	_, err := io.WriteString(p.out, "\r\x1b[K"+string(text))
	return err
}

// Keep writes a line that stays, also on a terminal.
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
		// Whatever a terminal does not take is lost, and the report is not.
		_ = p.show("")
	}
}

// steps counts measurements of which each takes about as long as the others.
type steps struct {
	out   io.Writer
	total int
	taken int
	start time.Time
	now   func() time.Time
	last  string
}

// NewSteps expects total measurements, and shows them on w, on a terminal if w is a progress on one.
func NewSteps(w io.Writer, total int) *steps {
	s := &steps{out: w, total: total, now: time.Now}
	if p, ok := w.(*progress); ok {
		s.now = p.now
	}
	s.start = s.now()
	return s
}

// Begin says on a terminal what is measured now, such as "round 3 of 15: redirect".
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

// End says what was measured, such as "round 3 of 15: redirect 3.88 Mpps". On a terminal only short, the name and the
// figure, is kept. An empty line is left out.
func (s *steps) End(line, short string) {
	s.taken++
	s.last = short
	if p, ok := s.out.(*progress); line != "" && (!ok || p.columns == 0) {
		fmt.Fprintln(s.out, line)
	}
}
