// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/lipgloss"

	"culvert/internal/show/text"
)

// theme holds the styles of the live table; without colours it is still readable.
type theme struct {
	plain, title, head, chosen, quiet, bad lipgloss.Style
}

func newTheme(r *lipgloss.Renderer) theme {
	s := r.NewStyle
	return theme{
		plain:  s(),
		title:  s().Bold(true),
		head:   s().Underline(true),
		chosen: s().Reverse(true),
		quiet:  s().Faint(true),
		bad:    s().Foreground(lipgloss.Color("1")).Bold(true),
	}
}

// styled is one line of the screen.
type styled struct {
	style lipgloss.Style
	text  string
}

const keysLine = "q quit   up, down, tab interface   p pause   v explain   ? help"

// View implements tea.Model.
func (s *screen) View() string {
	if s.width == 0 || s.height == 0 {
		return ""
	}
	lines := s.top()
	room := s.height - len(lines) - 1 // the keys
	if len(s.flows) == 0 {
		lines = append(lines, styled{s.theme.plain, ""}, styled{s.theme.plain, s.opts.waitingFor()})
	} else {
		list := s.list(max(room/2, 3))
		lines = append(lines, list...)
		lines = append(lines, styled{s.theme.plain, ""})
		room -= len(list) + 1
		if s.help {
			lines = append(lines, s.helpText()...)
		} else {
			lines = append(lines, s.detail(room)...)
		}
	}
	lines = lines[:min(len(lines), max(s.height-1, 0))]
	for len(lines) < s.height-1 {
		lines = append(lines, styled{s.theme.plain, ""})
	}
	lines = append(lines, styled{s.theme.quiet, keysLine})
	return s.paint(lines)
}

// paint cuts lines to the terminal's width before it styles them.
func (s *screen) paint(lines []styled) string {
	out := make([]string, len(lines))
	for n, l := range lines {
		text := []rune(l.text)
		out[n] = l.style.Render(string(text[:min(len(text), s.width)]))
	}
	return strings.Join(out, "\n")
}

func (s *screen) top() []styled {
	left := "culvert watch"
	if s.opts.Router != "" {
		left += " --on " + s.opts.Router
	}
	if s.opts.Interface != "" {
		left += " -i " + s.opts.Interface
	}
	right := fmt.Sprintf("%s   every %v   for %s", s.now.at.Format("15:04:05"), s.opts.Interval,
		text.Ago(s.now.at.Sub(s.started)))
	if s.paused {
		right = "PAUSED   " + right
	}
	gap := max(s.width-len(left)-len(right), 2)
	lines := []styled{{s.theme.title, left + strings.Repeat(" ", gap) + right}}
	if s.err != nil {
		lines = append(lines, styled{s.theme.bad, s.err.Error()})
	}
	return append(lines, styled{s.theme.plain, ""})
}

// list is the table of interfaces, scrolled so that the chosen one is among at most room lines.
func (s *screen) list(room int) []styled {
	head := styled{s.theme.head, columns(listColumns, s.width, "packets/s", "received", "bits/s", "forward",
		"slow path", "kernel", "drop", "lost")}
	var rows []styled
	at := 0
	for n, f := range s.flows {
		if n == 0 || s.flows[n-1].router != f.router {
			rows = append(rows, styled{s.theme.quiet, f.router.summary(s)})
		}
		style := s.theme.plain
		switch {
		case f.key == s.chosen:
			at = len(rows)
			style = s.theme.chosen
		case f.lost > 0:
			style = s.theme.bad
		case f.received == 0:
			style = s.theme.quiet
		}
		name := f.key.iface
		if !f.attached {
			name += " (off)"
		}
		rows = append(rows, styled{style, columns(listColumns, s.width, "  "+name, text.Short(f.received), text.Short(f.bits),
			text.Short(f.forwarded), text.Short(f.slow), text.Short(f.kernel), text.Short(f.dropped), text.Short(f.lost))})
	}
	first := min(max(at-(room-1)/2, 0), max(len(rows)-(room-1), 0))
	return append([]styled{head}, rows[first:min(first+room-1, len(rows))]...)
}

// summary is a router in one line.
func (r *Router) summary(s *screen) string {
	space := r.space()
	if r.NetNSName == "" {
		space = "netns " + space
	}
	parts := []string{r.ID + " in " + space, r.Mode, strings.TrimPrefix(r.service(), "served by ")}
	if r.LoadedAt != nil {
		parts = append(parts, "loaded "+text.Ago(s.now.at.Sub(*r.LoadedAt))+" ago")
	}
	return strings.Join(parts, ", ")
}

// detail shows the reasons of the chosen interface in at most room lines, the quiet ones last.
func (s *screen) detail(room int) []styled {
	n := s.chosenIndex()
	if n < 0 {
		return []styled{{s.theme.quiet, s.chosen.iface + " is gone"}}
	}
	f := s.flows[n]
	lines := []styled{{s.theme.head, columns(detailColumns, s.width, "  "+f.ifaceName()+" by reason", "packets/s",
		"bits/s", "packets", "bytes")}}
	for n, w := range f.rows {
		style := s.theme.plain
		switch {
		case w.moved == 0:
			style = s.theme.quiet
		case w.verdict != "fwd" && w.verdict != "pass" && w.verdict != "punt":
			style = s.theme.bad
		}
		bits, bytes := text.Short(8*w.byteRate), text.ShortBytes(w.bytes)
		if w.verdict == verdictLost {
			bits, bytes = "", ""
		}
		left := room - len(lines)
		if n < len(f.rows)-1 {
			left-- // a line to say that there are more
		}
		if left < 1 {
			return append(lines, styled{s.theme.quiet, fmt.Sprintf("  and %d more", len(f.rows)-n)})
		}
		lines = append(lines, styled{style, columns(detailColumns, s.width, fmt.Sprintf("  %-8s%s", w.verdict, w.name),
			text.Short(w.packetRate), bits, text.Grouped(w.packets), bytes)})
		if sentence := s.sentence(w); len(sentence) < left {
			lines = append(lines, sentence...)
		}
	}
	if len(f.rows) == 0 {
		lines = append(lines, styled{s.theme.quiet, "  nothing received yet"})
	}
	return lines
}

// sentence explains a row, in lines that stand below its name, if the user wants to know.
func (s *screen) sentence(w row) (lines []styled) {
	if !s.sentences {
		return nil
	}
	const indent = "          "
	for _, line := range text.Wrap(w.sentence, s.width-len(indent)) {
		lines = append(lines, styled{s.theme.quiet, indent + line})
	}
	return lines
}

func (s *screen) helpText() []styled {
	var lines []styled
	for _, text := range []string{
		"received   all that came in: forward, slow path, kernel and drop together",
		"forward    sent on by the fast path",
		"slow path  passed up to a stage's slow path, which answers",
		"kernel     nobody's packet: passed up as if culvert were not there",
		"drop       dropped by the fast path, or kept from the slow path by its limit",
		"lost       forwarded, and lost on the way out: see 'culvert doctor'",
		"",
		"up, k, shift+tab   interface above       p, space   hold the figures",
		"down, j, tab       interface below       v          explain each reason",
		"                                         q          leave",
	} {
		lines = append(lines, styled{s.theme.plain, text})
	}
	return lines
}
