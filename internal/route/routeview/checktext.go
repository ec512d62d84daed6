// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"fmt"
	"io"
	"strings"
	"time"

	"culvert/internal/show/text"
)

func (c Checked) writeText(out io.Writer) error {
	lines := []string{"router " + c.Router}
	for _, is6 := range []bool{false, true} {
		f := c.IPv4
		if is6 {
			f = c.IPv6
		}
		lines = append(lines, "  "+familyName(is6)+" "+f.text())
	}
	for _, d := range c.Differences {
		lines = append(lines, fmt.Sprintf("  %s: %s: fast path: %s; kernel: %s", d.Address, d.Text, d.FastPath, d.Kernel))
	}
	if more := c.IPv4.Differences + c.IPv6.Differences - len(c.Differences); more > 0 {
		lines = append(lines, fmt.Sprintf("  and %s more", text.Grouped(uint64(more))))
	}
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

func (f FamilyChecked) text() string {
	if f.Prefixes == 0 && f.Addresses == 0 && f.By != Mirror {
		return f.String() + ": nothing to compare"
	}
	words := []string{f.String()}
	for _, n := range []struct {
		count int
		name  string
	}{
		{f.Prefixes, "prefixes"}, {f.Addresses, "addresses compared"}, {f.Samples, "samples"},
		{f.Asked, "ask the kernel"}, {f.Changed, "changed meanwhile"},
	} {
		if n.count > 0 {
			words = append(words, text.Grouped(uint64(n.count))+" "+n.name)
		}
	}
	differences := "no differences"
	if f.Differences > 0 {
		least := ""
		if f.Differences == mostCandidates {
			least = "at least "
		}
		differences = fmt.Sprintf("differs at %s%s", least, addresses(f.Differences))
	}
	return strings.Join(append(words, differences), ", ")
}

func addresses(n int) string {
	if n == 1 {
		return "1 address"
	}
	return text.Grouped(uint64(n)) + " addresses"
}

// progressGap is the shortest time between two updates of the progress line.
const progressGap = 200 * time.Millisecond

// progress is a line on a terminal that is updated in place. A nil progress writes nothing.
type progress struct {
	out    io.Writer
	family string
	last   time.Time
	wrote  bool
}

func newProgress(out io.Writer, family string) *progress {
	if out == nil {
		return nil
	}
	return &progress{out: out, family: family, last: time.Now()}
}

func (p *progress) write(format string, args ...any) {
	if p == nil || time.Since(p.last) < progressGap {
		return
	}
	p.last, p.wrote = time.Now(), true
	fmt.Fprintf(p.out, "\r\x1b[K"+p.family+": "+format, args...)
}

func (p *progress) reading(n int) {
	if n%4096 == 0 {
		p.write("%d prefixes read", n)
	}
}

func (p *progress) comparing(n, of int) { p.write("%d of %d prefixes compared", n, of) }

func (p *progress) settling(n, of int) { p.write("%d of %d differences looked into", n, of) }

func (p *progress) sampling(n, of int) { p.write("%d of %d samples asked for", n, of) }

// end erases the line.
func (p *progress) end() {
	if p != nil && p.wrote {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
