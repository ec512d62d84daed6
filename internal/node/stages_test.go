// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/stage"
)

// readyLog remembers the stages that are said to be ready.
type readyLog struct {
	slog.Handler
	stages *[]string
}

func (l readyLog) Enabled(context.Context, slog.Level) bool { return true }

func (l readyLog) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if r.Message == "a stage is ready" && a.Key == "stage" {
			*l.stages = append(*l.stages, a.Value.String())
		}
		return true
	})
	return nil
}

// TestStageIsReady wants a stage to be told of when it comes up, and not when a reload serves it anew.
func TestStageIsReady(t *testing.T) {
	with := func(stages ...stage.Prepared) *up {
		return &up{name: "edge", file: stage.File{Node: &config.Node{}}, prepared: stages}
	}
	filter, lb := fakeStage{name: "filter"}, fakeStage{name: "lb"}
	var told []string
	s := newStages(with(filter), slog.New(readyLog{slog.DiscardHandler, &told}))
	for n, step := range []struct {
		do   func()
		want []string
	}{
		{func() { s.set("filter", datapath.StageReady, nil) }, []string{"filter"}},
		{func() { s.succeed(with(filter), nil); s.set("filter", datapath.StageReady, nil) }, nil},
		{func() {
			s.succeed(with(filter, lb), nil)
			s.set("lb", datapath.StageReady, nil)
			s.set("filter", datapath.StageReady, nil)
		}, []string{"lb"}},
		{func() { s.set("lb", datapath.StageOut, errors.New("no sockets")) }, nil},
		{func() { s.succeed(with(filter, lb), nil); s.set("lb", datapath.StageReady, nil) }, []string{"lb"}},
		{func() { s.succeed(with(filter, offStage{lb}), nil); s.set("lb", datapath.StageReady, nil) }, nil},
		{func() { s.succeed(with(filter, lb), nil); s.set("lb", datapath.StageReady, nil) }, []string{"lb"}},
		{func() { s.succeed(with(filter), nil) }, nil},
		{func() { s.succeed(with(filter, lb), nil); s.set("lb", datapath.StageReady, nil) }, []string{"lb"}},
	} {
		told = nil
		step.do()
		if !slices.Equal(told, step.want) {
			t.Errorf("step %d tells of %q, want %q", n, told, step.want)
		}
	}
}
