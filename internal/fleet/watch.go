// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"culvert/internal/cluster"
	"culvert/internal/show"
	"culvert/internal/show/screen"
	"culvert/internal/show/text"
)

// Watch shows the nodes live on a terminal until ctx ends, or with count that many times as lines.
func (f *Fleet) Watch(ctx context.Context, interval time.Duration, count int, out io.Writer) error {
	following, stop := context.WithCancel(ctx)
	defer stop()
	nodes, err := f.Follow(following)
	if err != nil {
		return err
	}
	look := func() (*Status, error) {
		states, err := nodes.Now()
		if err != nil {
			return nil, err
		}
		return f.status(ctx, states)
	}
	now, err := look()
	if err != nil {
		return err
	}
	terminal, ok := show.Terminal(out)
	if !ok || count > 0 {
		return f.watchLines(ctx, interval, count, look, out)
	}
	return screen.Run(ctx, terminal, interval, f.view(now, look))
}

// view is the screen of a fleet. What differs stands above the nodes, which scroll.
func (f *Fleet) view(now *Status, look func() (*Status, error)) screen.View {
	head := 0 // lines above the nodes
	v := screen.View{Keys: "q quit   p pause   ↑↓ scroll", FixedNow: func() int { return head }}
	v.Lines = func(t screen.Theme, width, height int) []screen.Line {
		lines := []screen.Line{t.TitleLine(now.title(), now.progress(), width)}
		for _, d := range someOf(now.Differs, max(height/3, 1)) {
			lines = append(lines, screen.Line{Style: t.Bad, Text: "! " + d})
		}
		table := now.Table()
		lines = append(lines, screen.Line{Style: t.Plain}, screen.Line{Style: t.Head, Text: table[0]})
		head = len(lines)
		for n, row := range table[1:] {
			style := t.Plain
			if now.Nodes[n].Health != cluster.HealthGood {
				style = t.Bad
			}
			lines = append(lines, screen.Line{Style: style, Text: row})
		}
		return lines
	}
	v.Look = func() (func(), error) {
		next, err := look()
		return func() { now = next }, err
	}
	return v
}

func (s *Status) title() string {
	title := fmt.Sprintf("cluster %s: %s", s.Cluster, text.Count(uint64(len(s.Nodes)), "node"))
	if len(s.Away) > 0 {
		title += fmt.Sprintf(", %d away", len(s.Away))
	}
	if len(s.Urgents) > 0 {
		title += ", " + text.Count(uint64(len(s.Urgents)), "urgent change")
	}
	return title
}

// progress says which revision runs, and how far a rollout is.
func (s *Status) progress() string {
	if r := s.Current.Rollout; r != nil {
		return fmt.Sprintf("revision %d, %d comes: step %d of %d", s.Current.Revision, r.To, r.Step, len(r.Plan))
	}
	return fmt.Sprintf("revision %d", s.Current.Revision)
}

// someOf returns lines as far as there is room, with how many there are beside them.
func someOf(lines []string, room int) []string {
	if len(lines) <= room {
		return lines
	}
	rest := len(lines) - room + 1
	return append(slices.Clone(lines[:room-1]), fmt.Sprintf("%d more: see 'culvert fleet status'", rest))
}

func (f *Fleet) watchLines(ctx context.Context, interval time.Duration, count int, look func() (*Status, error), out io.Writer) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 1; ; n++ {
		s, err := look()
		if err != nil {
			fmt.Fprintln(os.Stderr, "culvert:", err)
		} else if err := show.Lines(out, s.Lines()); err != nil {
			return err
		}
		if n == count {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
