// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/cluster/lastgood"
	"culvert/internal/config"
	"culvert/internal/host/pulse"
	"culvert/internal/stage"
	"culvert/internal/testbed"
)

// slowStage is a stage whose Serve ends when end is closed.
type slowStage struct {
	fakeStage
	serves, end chan struct{}
}

func (s slowStage) Serve(_ context.Context, ready func()) error {
	ready()
	close(s.serves)
	<-s.end
	return nil
}

// until waits for something that comes at last.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(testbed.Patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not so: " + what)
		}
	}
}

// TestSlowEnd has stages that do not end. The log names them once, and the process ends when they have ended.
func TestSlowEnd(t *testing.T) {
	before := slowEnd
	slowEnd = 20 * time.Millisecond
	defer func() { slowEnd = before }()
	var log testbed.Output
	slow := []slowStage{
		{fakeStage{name: "lb"}, make(chan struct{}), make(chan struct{})}, {fakeStage{name: "route"}, make(chan struct{}), make(chan struct{})},
	}
	u := &up{file: stage.File{Node: &config.Node{}}, prepared: []stage.Prepared{slow[0], fakeStage{name: "filter"}, slow[1]}}
	p := newProcess(u, nil, newExported(), slog.New(slog.NewTextHandler(&log, nil)), new(slog.LevelVar))
	p.watch.loop = pulse.New("the loop", time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	for _, s := range slow {
		<-s.serves
	}
	cancel()
	until(t, "logged", func() bool { return strings.Contains(log.String(), "stages=\"lb, route\"") })
	close(slow[0].end)
	close(slow[1].end)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "stages take long to end"); n != 1 {
		t.Errorf("it is logged %d times: %s", n, log.String())
	}
}

// TestLoopPulse has the process's own loop stand still, and turn again.
func TestLoopPulse(t *testing.T) {
	var log testbed.Output
	read, reading := make(chan error), make(chan struct{})
	u := &up{file: stage.File{Node: &config.Node{}}, prepared: []stage.Prepared{fakeStage{name: "lb", fail: make(chan error)}}}
	p := newProcess(u, func(*lastgood.Set) (stage.File, error) { close(reading); return stage.File{}, <-read }, newExported(),
		slog.New(slog.NewTextHandler(&log, nil)), new(slog.LevelVar))
	p.watch.loop = pulse.New("the loop", 4*loopPeriod)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	c := &call{done: make(chan struct{})}
	p.calls <- c
	<-reading
	until(t, "not alive", func() bool {
		err := p.watch.alive()
		return err != nil && strings.HasPrefix(err.Error(), "the loop has not turned for ")
	})
	read <- context.DeadlineExceeded
	<-c.done
	until(t, "alive", func() bool { return p.watch.alive() == nil })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// orderedStage notes when it is served and closed.
type orderedStage struct {
	fakeStage
	note func(what string)
}

func (s orderedStage) Serve(_ context.Context, ready func()) error {
	s.note("serve " + s.name)
	ready()
	return nil
}

func (s orderedStage) Close() error { s.note("close " + s.name); return nil }

// TestGoneClosesLast turns one stage off and follows another one. The one that is off closes when the other is served.
func TestGoneClosesLast(t *testing.T) {
	notes := make(chan string, 10)
	served := make(chan struct{})
	stageOf := func(name, when string) orderedStage {
		return orderedStage{fakeStage{name: name}, func(what string) {
			if what == "close gone" {
				select {
				case <-served:
				case <-time.After(5 * time.Second): // in vain: the test fails
				}
			}
			notes <- what + when
			if what == "serve stays" {
				close(served)
			}
		}}
	}
	u := &up{file: stage.File{Node: &config.Node{}}}
	p := newProcess(u, nil, newExported(), slog.New(slog.DiscardHandler), new(slog.LevelVar))
	p.states = newStages(u, p.log)
	defer p.states.close()
	p.beginKeepers(t.Context())
	defer func() { p.endKeepers() }()
	p.servers = []*server{{Prepared: stageOf("gone", "")}, {Prepared: stageOf("stays", " of before")}}
	next := &up{file: u.file, plans: []stage.Plan{fakePlan{name: "stays"}}, prepared: []stage.Prepared{stageOf("stays", "")}}
	p.succeed(t.Context(), next, nil, false)
	var got []string
	for range 3 {
		got = append(got, <-notes)
	}
	if want := []string{"close stays of before", "serve stays", "close gone"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
