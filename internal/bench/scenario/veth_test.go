// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/testbed"
)

// vethNames are the names of the rows that TestVeth measures, in the order of the report.
func vethNames() []string {
	names := []string{
		"direct", "bridge", "forward", "redirect", "rewrite", "culvert-nomac", "culvert-cold", "culvert-warm", "reference",
		"reference-1cpu", "culvert+reference",
		"direct@64", "bridge@64", "redirect@64",
		"direct@512", "bridge@512", "redirect@512", "culvert-nomac@512", "culvert-cold@512", "culvert-warm@512", "reference@512",
		"culvert+reference@512",
	}
	if load.AllowedCPUs() < 2 {
		return names
	}
	return append(names, "direct@2cpu", "bridge@2cpu", "redirect@2cpu", "culvert-nomac@2cpu", "culvert-cold@2cpu", "culvert-warm@2cpu",
		"reference@2cpu", "culvert+reference@2cpu")
}

// All rows forward, every packet is accounted for, and nothing is left behind.
func TestVeth(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	o := shortOptions(t)
	var progress bytes.Buffer
	o.Progress, o.Sizes = &progress, []string{"138", "64", "512"}
	r, err := Veth().Measure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Name)
		if !row.Valid || row.Received == 0 || row.Mpps.Median <= 0 {
			t.Errorf("row %+v", row)
		}
		// The reference router is slower than the generator and loses packets. Any device with a CPU of its own may do so too.
		// The others must not, on any machine, because generator and device take turns on one CPU.
		if !strings.HasPrefix(row.Name, "reference") && len(row.CPUs) == 1 && row.Received < row.Sent/2 {
			t.Errorf("row %+v", row)
		}
		if _, size, found := strings.Cut(row.Name, "@"); found && size == "512" && row.FrameSize != 512 {
			t.Errorf("row %+v", row)
		}
	}
	if want := vethNames(); !slices.Equal(names, want) {
		t.Errorf("rows %q\nwant %q", names, want)
	}
	ratios := []string{
		"culvert-cold/redirect", "culvert-cold/bridge", "culvert-cold/reference", "culvert+reference/reference",
		"culvert-cold@512/redirect@512", "redirect@64/bridge@64",
	}
	for _, ratio := range ratios {
		if r.Ratios[ratio] <= 0 || r.RatioSpreads[ratio].Median != r.Ratios[ratio] {
			t.Errorf("no ratio %s in %v", ratio, r.Ratios)
		}
	}
	if r.Ratios["culvert-cold@512/redirect"] != 0 {
		t.Error("rows of different groups are compared")
	}
	if r.Machine.Kernel == "" || r.Machine.CPUs == 0 {
		t.Errorf("machine %+v", r.Machine)
	}
	if !strings.Contains(progress.String(), "round 1 of 1: redirect") {
		t.Errorf("progress %q", &progress)
	}
}

// Without the reference router only its own rows are left out, unless they are named.
func TestMissingRouter(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	o := shortOptions(t)
	o.Router, o.Sizes, o.CPUs = "/nowhere/router", []string{peer.Shortest}, []int{1}
	var progress bytes.Buffer
	o.Progress = &progress
	r, err := Veth().Measure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.Invalid(), []string{"reference@min", "culvert+reference@min"}; !slices.Equal(got, want) {
		t.Errorf("invalid rows %q, want %q", got, want)
	}
	for _, row := range r.Rows {
		if !row.Valid && (row.Mpps != nil || !strings.Contains(row.Note, "culvert lab build")) {
			t.Errorf("row %+v", row)
		}
	}
	if !strings.Contains(progress.String(), "leaving reference out") {
		t.Errorf("progress %q", &progress)
	}
	o.Rows = []string{"culvert-cold", "culvert+reference"}
	if _, err := Veth().Measure(t.Context(), o); err == nil || !strings.Contains(err.Error(), "culvert lab build") {
		t.Errorf("error %v does not say how to get the router", err)
	}
}

// A scenario that is interrupted leaves nothing behind, at whatever step: no namespace, program, process or thread.
func TestInterruptedScenarioLeavesNothing(t *testing.T) {
	testbed.NeedRoot(t)
	for _, when := range []string{
		"setting up culvert+reference@512", "warming up culvert-cold@512", "warming up culvert+reference@512",
		"round 1 of 1: reference@512", "warming up direct@2cpu", "warming up culvert+reference@2cpu",
	} {
		if strings.HasSuffix(when, "2cpu") && load.AllowedCPUs() < 2 {
			continue
		}
		t.Run(when, func(t *testing.T) {
			testbed.CheckLeftovers(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o := shortOptions(t)
			o.Progress = testbed.CancelOn{Prefix: when, Cancel: cancel}
			o.Rows = []string{"direct", "culvert-cold", "reference", "culvert+reference"}
			o.Sizes, o.CPUs = []string{"512"}, []int{1}
			if strings.HasSuffix(when, "2cpu") {
				o.Sizes, o.CPUs = nil, []int{2}
			}
			if _, err := Veth().Measure(ctx, o); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			if left := children(t); len(left) > 0 {
				t.Errorf("processes %q are left", left)
			}
			if left, err := load.NAPIThreads("cvin"); err != nil || len(left) > 0 {
				t.Errorf("threads %v are left, error %v", left, err)
			}
		})
	}
}

// children lists the running child processes of this process.
func children(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, name := range files {
		// A thread that has ended meanwhile has no children.
		if pids, err := os.ReadFile(name); err == nil {
			all = append(all, strings.Fields(string(pids))...)
		}
	}
	return all
}
