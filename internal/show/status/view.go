// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"
	"time"

	"culvert/internal/show/screen"
	"culvert/internal/show/text"
)

// keysLine has the most important keys first. A narrow terminal shows as many as fit.
const keysLine = "q quit   ? help   p pause   v explain   up, down, tab interface"

// lines returns the lines of the live table.
func (l *live) lines(t screen.Theme, width, height int) []screen.Line {
	lines := []screen.Line{l.title(t, width), {Style: t.Plain}}
	room := height - len(lines)
	if len(l.flows) == 0 {
		return append(lines, screen.Line{Style: t.Plain}, screen.Line{Style: t.Plain, Text: l.opts.waitingFor()})
	}
	list := l.list(t, width, max(room/2, 3))
	lines = append(append(lines, list...), screen.Line{Style: t.Plain})
	if l.help {
		return append(lines, helpText(t, width)...)
	}
	return append(lines, l.detail(t, width, room-len(list)-1)...)
}

func (l *live) title(t screen.Theme, width int) screen.Line {
	left := "culvert watch"
	if l.opts.Router != "" {
		left += " --on " + l.opts.Router
	}
	if l.opts.Interface != "" {
		left += " -i " + l.opts.Interface
	}
	return t.TitleLine(left, fmt.Sprintf("%s   every %v   for %s", l.now.at.Format(time.TimeOnly), l.opts.Interval,
		text.Ago(l.now.at.Sub(l.started))), width)
}

// list returns the table of interfaces in at most room lines, scrolled so that the selected one is among them.
func (l *live) list(t screen.Theme, width, room int) []screen.Line {
	head := screen.Line{Style: t.Head, Text: columns(listColumns, width, "packets/s", "received", "bits/s", "forward",
		"slow path", "kernel", "drop", "lost")}
	var rows []screen.Line
	at := 0
	for n, f := range l.flows {
		if n == 0 || l.flows[n-1].router != f.router {
			rows = append(rows, screen.Line{Style: t.Quiet, Text: f.router.summary(l.now.at)})
		}
		style := t.Plain
		switch {
		case f.key == l.selected:
			at = len(rows)
			style = t.Selected
		case f.lost > 0:
			style = t.Bad
		case f.received == 0:
			style = t.Quiet
		}
		name := f.key.iface
		if !f.attached {
			name += " (off)"
		}
		rows = append(rows, screen.Line{Style: style, Text: columns(listColumns, width, "  "+name, text.Short(f.received), text.Short(f.bits),
			text.Short(f.forwarded), text.Short(f.slow), text.Short(f.kernel), text.Short(f.dropped), text.Short(f.lost))})
	}
	first := min(max(at-(room-1)/2, 0), max(len(rows)-(room-1), 0))
	return append([]screen.Line{head}, rows[first:min(first+room-1, len(rows))]...)
}

// summary returns a router in one line.
func (r *Router) summary(now time.Time) string {
	space := r.netnsLabel()
	if r.NetNSName == "" {
		space = "netns " + space
	}
	parts := []string{r.ID + " in " + space, r.Mode, strings.TrimPrefix(r.service(), "served by ")}
	if r.LoadedAt != nil {
		parts = append(parts, "loaded "+text.Ago(now.Sub(*r.LoadedAt))+" ago")
	}
	return strings.Join(parts, ", ")
}

// detail returns the reasons of the selected interface in at most room lines, the fastest first.
func (l *live) detail(t screen.Theme, width, room int) []screen.Line {
	n := l.selectedIndex()
	if n < 0 {
		return []screen.Line{{Style: t.Quiet, Text: l.selected.iface + " is gone"}}
	}
	f := l.flows[n]
	lines := []screen.Line{{Style: t.Head, Text: columns(detailColumns, width, "  "+f.ifaceName()+" by reason", "packets/s",
		"bits/s", "packets", "bytes")}}
	for n, w := range f.rows {
		style := t.Plain
		switch {
		case w.delta == 0:
			style = t.Quiet
		case w.verdict != "fwd" && w.verdict != "pass" && w.verdict != "punt":
			style = t.Bad
		}
		bits, bytes := text.Short(8*w.byteRate), text.ShortBytes(w.bytes)
		if w.verdict == verdictLost {
			bits, bytes = "", ""
		}
		left := room - len(lines)
		if n < len(f.rows)-1 {
			left-- // the last line says how many more there are
		}
		if left < 1 {
			return append(lines, screen.Line{Style: t.Quiet, Text: fmt.Sprintf("  and %d more", len(f.rows)-n)})
		}
		lines = append(lines, screen.Line{Style: style, Text: columns(detailColumns, width, fmt.Sprintf("  %-8s%s", w.verdict, w.name),
			text.Short(w.packetRate), bits, text.Grouped(w.packets), bytes)})
		if sentence := l.sentence(t, width, w); len(sentence) < left {
			lines = append(lines, sentence...)
		}
	}
	if len(f.rows) == 0 {
		lines = append(lines, screen.Line{Style: t.Quiet, Text: "  nothing received yet"})
	}
	return lines
}

// sentence returns the sentence that explains a row, wrapped and indented. It returns none if sentences are off.
func (l *live) sentence(t screen.Theme, width int, w row) (lines []screen.Line) {
	if !l.sentences {
		return nil
	}
	const indent = "          "
	for _, line := range text.Wrap(w.sentence, width-len(indent)) {
		lines = append(lines, screen.Line{Style: t.Quiet, Text: indent + line})
	}
	return lines
}

// helpText explains the columns and the keys in lines of at most width cells.
func helpText(t screen.Theme, width int) (lines []screen.Line) {
	add := func(text string) { lines = append(lines, screen.Line{Style: t.Plain, Text: text}) }
	explain := func(indent int, head, about string) {
		for n, line := range text.Wrap(about, max(width-indent, 1)) {
			if n > 0 {
				head = ""
			}
			add(fmt.Sprintf("%-*s%s", indent, head, line))
		}
	}
	for _, c := range [][2]string{
		{"received", "all packets that came in: forward, slow path, kernel and drop together"},
		{"forward", "forwarded by the fast path"},
		{"slow path", "passed to the slow path of a stage"},
		{"kernel", "claimed by no stage: passed to the kernel as if culvert were not there"},
		{"drop", "dropped by the fast path, or over the limit of the slow path"},
		{"lost", "forwarded, and lost on the way out: see 'culvert doctor'"},
	} {
		explain(11, c[0], c[1])
	}
	add("")
	for _, c := range [][2]string{
		{"up, k, shift+tab", "interface above"}, {"down, j, tab", "interface below"}, {"p, space", "pause"},
		{"v", "explain each reason"}, {"?, h", "close this"}, {"q", "quit"},
	} {
		explain(19, c[0], c[1])
	}
	return lines
}
