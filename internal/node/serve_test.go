// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/doctor"
	"culvert/internal/stage"
)

// fakeStage serves until it is told to fail.
type fakeStage struct {
	stage.Prepared
	name string
	fail chan error // nil for one that needs no process
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

// TestStageOut has one stage of three fail: the others go on, and everything says which is out and why. When the last one that
// needs a process fails too, serving ends with its error.
func TestStageOut(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	if out, err := exec.Command("ip", "link", "add", "no0", "type", "veth", "peer", "name", "no1").CombinedOutput(); err != nil {
		t.Fatalf("ip: %v: %s", err, out)
	}
	inst, err := datapath.Attach(datapath.Options{Name: "node-stage-test", Interfaces: []string{"no0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Close()
	defer func() { _ = inst.DetachAll() }()
	first, second := make(chan error), make(chan error)
	u := &up{file: stage.File{Node: &config.Node{}}, inst: inst, prepared: []stage.Prepared{
		fakeStage{name: "filter"}, fakeStage{name: "scion", fail: first}, fakeStage{name: "route", fail: second},
	}}
	var log strings.Builder
	ended := make(chan error, 1)
	go func() { ended <- u.serveStages(t.Context(), slog.New(slog.NewTextHandler(&log, nil))) }()
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
	filter := datapath.StageState{Stage: "filter", State: datapath.StageReady}
	scion, route := filter, filter
	scion.Stage, route.Stage = "scion", "route"
	expect(filter, scion, route)
	first <- errors.New("no sockets")
	scion.State, scion.Why = datapath.StageOut, "no sockets"
	expect(filter, scion, route)
	if out, err := inst.StagesOut(); err != nil || !out["scion"] || out["route"] {
		t.Errorf("out are %v, %v", out, err)
	}
	var o doctor.Options
	DoctorRunning(&o)
	if len(o.FailedStages) != 1 || o.FailedStages[0] != (doctor.FailedStage{Router: "node-stage-test", Stage: "scion", Why: "no sockets"}) {
		t.Errorf("doctor is told of %+v", o.FailedStages)
	}
	last := errors.New("no tables")
	second <- last
	if err := <-ended; !errors.Is(err, last) {
		t.Errorf("ended with %v, want %v", err, last)
	}
	if n := strings.Count(log.String(), "a stage is out"); n != 2 {
		t.Errorf("told %d times: %s", n, &log)
	}
	if states, known, err := inst.Stages(); known || err != nil {
		t.Errorf("after the end the stages are %+v, %v", states, err)
	}
}
