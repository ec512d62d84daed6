// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/doctor"
	"culvert/internal/stage"
	"culvert/internal/testbed"
)

// fakeStage is a stage that serves until an error comes by fail. With fail nil it needs no process.
type fakeStage struct {
	stage.Prepared
	name string
	fail chan error
}

func (f fakeStage) Name() string { return f.name }

func (f fakeStage) Serve(ctx context.Context, ready func()) error {
	if f.fail == nil {
		return nil
	}
	ready()
	select {
	case err := <-f.fail:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestStageOut has one stage of three fail. The others go on, and the instance and doctor say which one is out and why. When the
// last one that needs a process fails too, the process ends with its error.
func TestStageOut(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "no0", "no1")
	inst, err := datapath.Attach(datapath.Options{Name: "node-stage-test", Interfaces: []string{"no0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Close()
	defer func() { _ = inst.DetachAll() }()
	failSCION, failRoute := make(chan error), make(chan error)
	u := &up{file: stage.File{Node: &config.Node{}}, inst: inst, prepared: []stage.Prepared{
		fakeStage{name: "filter"}, fakeStage{name: "scion", fail: failSCION}, fakeStage{name: "route", fail: failRoute},
	}}
	var log strings.Builder
	ended := make(chan error, 1)
	p := newProcess(u, nil, newExported(), slog.New(slog.NewTextHandler(&log, nil)), new(slog.LevelVar))
	go func() { ended <- p.run(t.Context()) }()
	expect := func(want ...datapath.StageState) {
		t.Helper()
		var got []datapath.StageState
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if got, _, err = inst.Stages(); err == nil && slices.Equal(got, want) {
				return
			}
		}
		t.Fatalf("the stages are %+v, %v, want %+v", got, err, want)
	}
	expect(
		datapath.StageState{Stage: "filter", State: datapath.StageReady},
		datapath.StageState{Stage: "scion", State: datapath.StageReady},
		datapath.StageState{Stage: "route", State: datapath.StageReady},
	)
	failSCION <- errors.New("no sockets")
	expect(
		datapath.StageState{Stage: "filter", State: datapath.StageReady},
		datapath.StageState{Stage: "scion", State: datapath.StageOut, Why: "no sockets"},
		datapath.StageState{Stage: "route", State: datapath.StageReady},
	)
	if states, err := inst.StageStates(); err != nil || states["scion"] != datapath.StageOut || states["route"] != datapath.StageReady {
		t.Errorf("the states are %v, %v", states, err)
	}
	var o doctor.Options
	DoctorRunning(&o)
	if len(o.FailedStages) != 1 || o.FailedStages[0] != (doctor.FailedStage{Router: "node-stage-test", Stage: "scion", Why: "no sockets"}) {
		t.Errorf("doctor has %+v", o.FailedStages)
	}
	last := errors.New("no tables")
	failRoute <- last
	if err := <-ended; !errors.Is(err, last) {
		t.Errorf("ended with %v, want %v", err, last)
	}
	if n := strings.Count(log.String(), "a stage is out"); n != 2 {
		t.Errorf("%d failures are logged, want 2: %s", n, &log)
	}
	if states, known, err := inst.Stages(); known || err != nil {
		t.Errorf("after the end the stages are %+v, %v", states, err)
	}
}

// TestRetry wants the time between two attempts to double from a second to a minute.
func TestRetry(t *testing.T) {
	now := time.Unix(1000, 0)
	var r retry
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		if r = r.later(now); r.at.Sub(now) != want*time.Second {
			t.Errorf("the next attempt is after %v, want %v", r.at.Sub(now), want*time.Second)
		}
	}
}

// TestStageTriedAgain wants a reload to name the stages that it tries again: those that are out, and that the file still has.
func TestStageTriedAgain(t *testing.T) {
	out := errors.New("no tables")
	p := &process{servers: []*server{
		{Prepared: fakeStage{name: "filter"}, over: true}, {Prepared: fakeStage{name: "lb"}},
		{Prepared: fakeStage{name: "route"}, over: true, err: out}, {Prepared: fakeStage{name: "scion"}, over: true, err: out},
	}}
	got := p.triedAgain([]stage.Plan{fakePlan{name: "filter"}, fakePlan{name: "lb"}, fakePlan{name: "route"}})
	if want := []string{"stage route tried again, which was out: no tables"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// fakePlan is a plan of which only the stage's name is asked for.
type fakePlan struct {
	stage.Plan
	name string
}

func (f fakePlan) Name() string { return f.name }

// takingStage is a fakeStage that takes over when taken is closed.
type takingStage struct {
	fakeStage
	taken chan struct{}
}

func (s takingStage) Taken() <-chan struct{} { return s.taken }

// TestReloadAwaitsStages wants a reload to be in force once all stages have taken over, or have ended. It waits for none for ever.
func TestReloadAwaitsStages(t *testing.T) {
	var log strings.Builder
	one, two := takingStage{fakeStage{name: "one"}, make(chan struct{})}, takingStage{fakeStage{name: "two"}, make(chan struct{})}
	p := newProcess(&up{}, nil, newExported(), slog.New(slog.NewTextHandler(&log, nil)), new(slog.LevelVar))
	over := make(chan struct{})
	p.servers = []*server{{Prepared: fakeStage{name: "filter"}}, {Prepared: one, done: make(chan struct{})}, {Prepared: two, done: over}}
	waiting := func() <-chan struct{} {
		done := make(chan struct{})
		go func() { defer close(done); p.awaitTaken(t.Context()) }()
		return done
	}
	in := waiting()
	close(over)
	select {
	case <-in:
		t.Fatal("in force before the first stage has taken over")
	case <-time.After(50 * time.Millisecond):
	}
	close(one.taken)
	<-in
	if log.Len() > 0 {
		t.Errorf("the log has %s", log.String())
	}
	defer func(d time.Duration) { takenWithin = d }(takenWithin)
	takenWithin = time.Millisecond
	p.servers[2].done = make(chan struct{})
	<-waiting()
	if !strings.Contains(log.String(), "takes long to take over") || !strings.Contains(log.String(), "stage=two") {
		t.Errorf("the log has %q", log.String())
	}
}
