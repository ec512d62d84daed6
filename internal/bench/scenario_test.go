// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
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
	if len(r.Rows) != 6 {
		t.Errorf("%d rows, want 6", len(r.Rows))
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

// What a scenario does not have cannot be asked of it.
func TestOptionsOfOthers(t *testing.T) {
	for _, tc := range []struct {
		scenario string
		o        Options
		want     string
	}{
		{"cost", Options{Sizes: []string{"64"}}, "--size is not for scenario cost"},
		{"cost", Options{CPUs: []int{2}}, "--cpus is not for"},
		{"ndr", Options{CPUs: []int{1}}, "--cpus is not for"},
		{"workers", Options{Sizes: []string{"150"}}, "--size is not for"},
		{"veth", Options{Lab: "scion3"}, "--lab is not for"},
		{"veth", Options{Groups: []string{"4-few"}}, "--groups is not for scenario veth, only for route"},
		{"route", Options{Sizes: []string{"64"}}, "--size is not for"},
		{"veth", Options{Round: time.Nanosecond}, "--seconds 1e-09: give 0.001 to 3600"},
		{"veth", Options{Round: 2 * time.Hour}, "--seconds 7200"},
	} {
		tc.o.Progress = io.Discard
		if _, err := Run(t.Context(), tc.scenario, tc.o); !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s %+v: error %v", tc.scenario, tc.o, err)
		}
	}
	_, err := Run(t.Context(), "veth", Options{Rows: []string{"direct@512"}, Progress: io.Discard})
	if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "--size") {
		t.Errorf("a variant as a row: error %v", err)
	}
}

// The tables of rows in the documentation name every row.
func TestRowsAreDocumented(t *testing.T) {
	var pages string
	for _, page := range []string{"benchmarks", "workers"} {
		text, err := os.ReadFile("../../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		pages += string(text)
	}
	for _, scenario := range Scenarios() {
		for _, name := range RowNames(scenario) {
			name, _, variant := strings.Cut(name, "@")
			if !variant {
				name += "`"
			}
			if !strings.Contains(pages, "| `"+name) && !strings.Contains(pages, ", `"+name) {
				t.Errorf("row `%s of scenario %s is in no table of docs/benchmarks.md or docs/workers.md", name, scenario)
			}
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
