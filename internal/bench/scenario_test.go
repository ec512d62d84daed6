// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// held lists the namespaces, programs, maps and links that the process holds: what could outlive a measurement.
func held(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, f := range files {
		target, err := os.Readlink(f)
		if err == nil && (strings.HasPrefix(target, "net:") || strings.Contains(target, "bpf")) {
			kept = append(kept, target)
		}
	}
	slices.Sort(kept)
	return kept
}

// testRouter is the reference router that the test target of the Makefile builds beforehand.
const testRouter = "../../bin/peers/router"

// shortOptions measure every row of a scenario for a moment.
func shortOptions(t *testing.T) Options {
	t.Helper()
	if _, err := os.Stat(testRouter); err != nil {
		t.Fatalf("%v: run 'make peers' first", err)
	}
	return Options{Rounds: 1, Round: 10 * time.Millisecond, Router: testRouter, Progress: io.Discard}
}

// checkLeftovers fails the test if it leaves files, programs or namespaces behind.
func checkLeftovers(t *testing.T) {
	t.Helper()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	before := held(t)
	t.Cleanup(func() {
		if after := held(t); !slices.Equal(before, after) {
			t.Errorf("held %q before, %q afterwards", before, after)
		}
		if files, err := os.ReadDir(tmp); err != nil || len(files) > 0 {
			t.Errorf("left files %v, error %v", files, err)
		}
	})
}

// All rows forward, every packet is accounted for, and nothing remains.
func TestVeth(t *testing.T) {
	needRoot(t)
	checkLeftovers(t)
	o := shortOptions(t)
	var progress bytes.Buffer
	o.Progress = &progress
	r, err := Run(context.Background(), "veth", o)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Name)
		if !row.Valid || row.Received == 0 || row.Mpps.Median <= 0 {
			t.Errorf("row %+v", row)
		}
		// The reference router loses packets, because it is slower than the generator. The others must not, however
		// fast the machine is, because generator and device take turns on one CPU.
		if !strings.HasPrefix(row.Name, "reference") && row.Received < row.Sent/2 {
			t.Errorf("row %+v", row)
		}
	}
	want := []string{"direct", "bridge", "redirect", "culvert-nomac", "culvert-cold", "culvert-warm", "reference", "reference-1cpu"}
	if !slices.Equal(names, want) {
		t.Errorf("rows %q, want %q", names, want)
	}
	for _, ratio := range []string{"culvert-cold/redirect", "culvert-cold/bridge", "culvert-cold/reference"} {
		if r.Ratios[ratio] <= 0 {
			t.Errorf("no ratio %s in %v", ratio, r.Ratios)
		}
	}
	if r.Machine.Kernel == "" || r.Machine.CPUs == 0 {
		t.Errorf("machine %+v", r.Machine)
	}
	if !strings.Contains(progress.String(), "round 1 of 1: redirect") {
		t.Errorf("progress %q", &progress)
	}
}

// All programs redirect every one of their frames: the measurement itself insists on it.
func TestCost(t *testing.T) {
	needRoot(t)
	checkLeftovers(t)
	r, err := Run(context.Background(), "cost", shortOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.Best == nil || row.Frames != coldFrames || row.Mpps != nil {
			t.Errorf("row %+v", row)
		}
	}
	if len(r.Rows) != 5 {
		t.Errorf("%d rows, want 5", len(r.Rows))
	}
}

// What a device pins is gone with the row.
func TestCulvertLeavesNoPins(t *testing.T) {
	needRoot(t)
	checkLeftovers(t)
	frames, err := UDPFrames(4, frameSize)
	if err != nil {
		t.Fatal(err)
	}
	row := vethRow{name: "culvert-cold", opts: vethOptions{Frames: frames, CPU: LastCPU()}}
	row.device = &culvert{traffic: scionTraffic{cold: true, size: frameSize}}
	if err := row.Setup(context.Background()); err != nil {
		t.Fatal(errors.Join(err, row.Teardown()))
	}
	var st unix.Stat_t
	if err := unix.Fstat(row.under.FD(), &st); err != nil {
		t.Error(err)
	}
	pins := fmt.Sprintf("/sys/fs/bpf/culvert/%d", st.Ino)
	if _, err := os.Stat(pins); err != nil {
		t.Errorf("while it runs: %v", err)
	}
	if err := row.Teardown(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(pins); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left, error %v", pins, err)
	}
}

func TestMissingRouter(t *testing.T) {
	needRoot(t)
	checkLeftovers(t)
	o := shortOptions(t)
	o.Rows, o.Router = []string{"reference"}, "/nowhere/router"
	if _, err := Run(context.Background(), "veth", o); err == nil || !strings.Contains(err.Error(), "culvert lab build") {
		t.Errorf("error %v does not say how to get the router", err)
	}
}

// A router that ends at once is reported with its last words.
func TestBrokenRouter(t *testing.T) {
	needRoot(t)
	checkLeftovers(t)
	o := shortOptions(t)
	o.Rows, o.Router = []string{"reference"}, filepath.Join(t.TempDir(), "router")
	if err := os.WriteFile(o.Router, []byte("#!/bin/sh\necho cannot go on\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(context.Background(), "veth", o); err == nil || !strings.Contains(err.Error(), "cannot go on") {
		t.Errorf("error %v does not say what the router said", err)
	}
}

func TestInterruptedScenarioLeavesNothing(t *testing.T) {
	needRoot(t)
	checkLeftovers(t)
	ctx, cancel := context.WithCancel(context.Background())
	o := shortOptions(t)
	o.Progress = cancelOn{"warming up culvert-cold", cancel}
	if _, err := Run(ctx, "veth", o); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// cancelOn cancels when it is given a line that begins with prefix.
type cancelOn struct {
	prefix string
	cancel func()
}

func (c cancelOn) Write(line []byte) (int, error) {
	if strings.HasPrefix(string(line), c.prefix) {
		c.cancel()
	}
	return len(line), nil
}

func TestUnknownNames(t *testing.T) {
	tests := []struct {
		scenario string
		rows     []string
	}{
		{"nothing", nil},
		{"veth", []string{"redirect", "nothing"}},
		{"cost", []string{"bridge"}},
	}
	for _, tc := range tests {
		_, err := Run(context.Background(), tc.scenario, Options{Rows: tc.rows, Progress: io.Discard})
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("%s %v: error %v", tc.scenario, tc.rows, err)
		}
	}
}

// All candidates of the cost scenario can be measured by themselves.
func TestCostCandidates(t *testing.T) {
	for _, c := range candidates {
		if !slices.Contains(c.scenarios, "cost") {
			continue
		}
		if _, ok := c.device(Options{}).(Costed); !ok {
			t.Errorf("%s is in the cost scenario but is no program", c.name)
		}
	}
}
