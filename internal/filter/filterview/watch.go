// SPDX-License-Identifier: Apache-2.0

package filterview

import (
	"context"
	"fmt"
	"io"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/show"
	"culvert/internal/show/screen"
	"culvert/internal/show/text"
)

// WatchOptions are options for Watch.
type WatchOptions struct {
	// On is the name of the data plane, "" for the only one.
	On       string
	Interval time.Duration
	// Count is after how many intervals Watch ends, 0 for never. Unless it is 0, Watch writes lines.
	Count int
	// Out gets a full-screen table if it is a terminal, and lines otherwise.
	Out io.Writer
}

// sample holds the rules with their counters at a time.
type sample struct {
	at time.Time
	Report
}

// speed is how fast the counters of a rule grow.
type speed struct {
	rule                Rule
	packets, bits, over float64 // per second
	moved               bool    // the rule has matched packets
}

// Watch shows how fast the counters of rules grow, until ctx ends or the user leaves.
func Watch(ctx context.Context, o WatchOptions) error {
	if err := screen.Check(o.Interval, o.Count); err != nil {
		return err
	}
	inst, err := Open(o.On)
	if err != nil {
		return err
	}
	defer inst.Close()
	look := func() (sample, error) { return lookAt(inst) }
	first, err := look()
	if err != nil {
		return err
	}
	if f, ok := show.Terminal(o.Out); ok && o.Count == 0 {
		w := &watched{o: o, last: first, now: first}
		return screen.Run(ctx, f, o.Interval, scrolled(w.view, func() (func(), error) {
			now, err := look()
			return func() { w.last, w.now = w.now, now }, err
		}))
	}
	return watchLines(ctx, o, first, look)
}

// lookAt reads the filter. The rules may be others than before.
func lookAt(inst *datapath.Instance) (sample, error) {
	r, err := collect(inst)
	return sample{time.Now(), r}, err
}

// speeds returns the speeds of the rules of now, given an earlier sample. A rule that was added or replaced since then has speed 0:
// nobody knows when.
func speeds(last, now sample) []speed {
	seconds := now.at.Sub(last.at).Seconds()
	before := make(map[string]Rule)
	for _, r := range last.Rules {
		before[r.Name] = r
	}
	var all []speed
	for _, r := range now.Rules {
		s := speed{rule: r}
		if b, ok := before[r.Name]; ok && seconds > 0 && r.Packets >= b.Packets && r.Bytes >= b.Bytes {
			s.moved = r.Packets > b.Packets
			s.packets = float64(r.Packets-b.Packets) / seconds
			s.bits = 8 * float64(r.Bytes-b.Bytes) / seconds
			if r.Over != nil && b.Over != nil && r.Over.Packets >= b.Over.Packets {
				s.over = float64(r.Over.Packets-b.Over.Packets) / seconds
			}
		}
		all = append(all, s)
	}
	return all
}

const lineFormat = "%-8s  %-24s  %12s  %14s  %12s  %14s\n"

func watchLines(ctx context.Context, o WatchOptions, last sample, look func() (sample, error)) error {
	if _, err := fmt.Fprintf(o.Out, lineFormat, "TIME", "RULE", "PACKETS/S", "BITS/S", "OVER/S", "PACKETS"); err != nil {
		return err
	}
	return screen.Every(ctx, o.Interval, o.Count, func() error {
		now, err := look()
		if err != nil {
			return err
		}
		all := speeds(last, now)
		last = now
		return writeMoved(o.Out, now.at, all)
	})
}

func writeMoved(out io.Writer, at time.Time, all []speed) error {
	for _, s := range all {
		if !s.moved {
			continue
		}
		over := "-"
		if s.rule.Over != nil {
			over = fmt.Sprintf("%.1f", s.over)
		}
		_, err := fmt.Fprintf(out, lineFormat, at.Format(time.TimeOnly), s.rule.Name,
			fmt.Sprintf("%.1f", s.packets), fmt.Sprintf("%.0f", s.bits), over, fmt.Sprint(s.rule.Packets))
		if err != nil {
			return err
		}
	}
	return nil
}

// scrolled returns a live table with a fixed title and head. Look reads the next sample.
func scrolled(lines func(t screen.Theme, width int) []screen.Line, look func() (func(), error)) screen.View {
	return screen.View{
		Lines: func(t screen.Theme, width, _ int) []screen.Line { return lines(t, width) },
		Fixed: 3, // title, blank, head
		Look:  look,
		Keys:  "q quit   up, down scroll   p pause",
	}
}

// watched holds the two samples of a live table.
type watched struct {
	o         WatchOptions
	last, now sample
}

func (w *watched) view(t screen.Theme, width int) []screen.Line {
	table := text.Table{Right: []bool{false, true, true, true, true}}
	table.Add("rule", "packets/s", "bits/s", "over/s", "packets", "what")
	all := speeds(w.last, w.now)
	for _, s := range all {
		over := ""
		if s.rule.Over != nil {
			over = text.Short(s.over)
		}
		table.Add(s.rule.Name, text.Short(s.packets), text.Short(s.bits), over, text.Grouped(s.rule.Packets), s.rule.Words)
	}
	lines := []screen.Line{t.TitleLine("culvert filter watch "+w.now.Router, fmt.Sprintf("%s   every %v",
		w.now.at.Format(time.TimeOnly), w.o.Interval), width), {Style: t.Plain}}
	for n, line := range table.Lines() {
		style := t.Plain
		switch {
		case n == 0:
			style = t.Head
		case !all[n-1].moved:
			style = t.Quiet
		case all[n-1].over > 0 || all[n-1].rule.Action == string(filterplane.Drop):
			style = t.Bad
		}
		lines = append(lines, screen.Line{Style: style, Text: line})
	}
	if len(all) == 0 {
		lines = append(lines, screen.Line{Style: t.Quiet, Text: "no rules: add one with 'culvert filter add'"})
	}
	if n := w.now.Short.Packets + w.now.Malformed.Packets; n > 0 {
		lines = append(lines, screen.Line{Style: t.Plain}, screen.Line{Style: t.Quiet, Text: fmt.Sprintf("short %s   malformed %s",
			text.Grouped(w.now.Short.Packets), text.Grouped(w.now.Malformed.Packets))})
	}
	return lines
}
