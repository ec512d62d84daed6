// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

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
	// head is how many lines stand above the nodes.
	v := screen.View{Keys: "q quit   p pause   ↑↓ scroll"}
	v.Lines = func(t screen.Theme, width, _ int) []screen.Line {
		right := fmt.Sprintf("revision %d", now.Current.Revision)
		if r := now.Current.Rollout; r != nil {
			right = fmt.Sprintf("revision %d → %d, step %d of %d", now.Current.Revision, r.To, r.Step, len(r.Plan))
		}
		lines := []screen.Line{t.TitleLine(fmt.Sprintf("cluster %s: %s, %d away", now.Cluster, text.Count(uint64(len(now.Nodes)), "node"), len(now.Away)), right, width)}
		table := now.Table()
		lines = append(lines, screen.Line{Style: t.Head, Text: table[0]})
		for _, d := range now.Differs {
			lines = append(lines, screen.Line{Style: t.Bad, Text: "! " + d})
		}
		for n, row := range table[1:] {
			style := t.Plain
			if now.Nodes[n].Health != "good" {
				style = t.Bad
			}
			lines = append(lines, screen.Line{Style: style, Text: row})
		}
		return lines
	}
	v.Fixed = 2
	v.Look = func() (func(), error) {
		next, err := look()
		return func() { now = next }, err
	}
	return v
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
