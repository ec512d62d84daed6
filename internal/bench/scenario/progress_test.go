// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// measureTwo simulates two rounds of two rows. Each measurement takes a second.
func measureTwo(p *progress) {
	clock := time.Unix(0, 0)
	p.now = func() time.Time { return clock }
	fmt.Fprintf(p, "setting up %s\n", "a")
	s := NewSteps(p, 4)
	for round := range 2 {
		for _, row := range []string{"a", "b"} {
			what := fmt.Sprintf("round %d of 2: %s", round+1, row)
			s.Begin(what)
			clock = clock.Add(time.Second)
			s.End(what+" 1.00 Mpps", row+" 1.00 Mpps")
		}
	}
	p.done()
}

func TestProgressInAFile(t *testing.T) {
	var b bytes.Buffer
	measureTwo(newProgress(&b, "veth"))
	want := "setting up a\nround 1 of 2: a 1.00 Mpps\nround 1 of 2: b 1.00 Mpps\nround 2 of 2: a 1.00 Mpps\nround 2 of 2: b 1.00 Mpps\n"
	if b.String() != want {
		t.Errorf("wrote %q, want %q", &b, want)
	}
}

func TestProgressOnATerminal(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b, "veth")
	p.columns = 60
	measureTwo(p)
	lines := strings.Split(b.String(), "\r\x1b[K")
	want := []string{
		"", "veth: setting up a", "veth: round 1 of 2: a", "veth: round 1 of 2: b, 3s left (last: a 1.00 Mpps)",
		"veth: round 2 of 2: a, 2s left (last: b 1.00 Mpps)", "veth: round 2 of 2: b, 1s left (last: a 1.00 Mpps)", "",
	}
	if strings.Join(lines, "|") != strings.Join(want, "|") {
		t.Errorf("wrote\n%q, want\n%q", lines, want)
	}
	if strings.Contains(b.String(), "\n") {
		t.Errorf("%q begins a new line", &b)
	}
}

// A line wider than the terminal would leave parts of itself behind, so it is cut.
func TestProgressOnANarrowTerminal(t *testing.T) {
	for _, columns := range []int{1, 2, 20} {
		var b bytes.Buffer
		p := newProgress(&b, "veth")
		p.columns = columns
		lines := []byte("one line\nanother one µµµµµµµµµ\n")
		if n, err := p.Write(lines); n != len(lines) || err != nil {
			t.Errorf("took %d bytes, error %v", n, err)
		}
		text := strings.TrimPrefix(b.String(), "\r\x1b[K")
		if got := len([]rune(text)); got >= columns {
			t.Errorf("%q has %d columns, the terminal %d", text, got, columns)
		}
	}
}
