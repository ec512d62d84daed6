// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
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

func TestScenariosRunAndLeaveNothing(t *testing.T) {
	needRoot(t)
	for _, scenario := range Scenarios() {
		t.Run(scenario, func(t *testing.T) {
			before := held(t)
			var progress bytes.Buffer
			r, err := Run(context.Background(), scenario, Options{
				Rows:     []string{"redirect"},
				Rounds:   1,
				Round:    time.Millisecond,
				Progress: &progress,
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Rows) != 1 || r.Rows[0].Name != "redirect" || !r.Rows[0].Valid || r.Rows[0].NsPerPacket.Max == 0 {
				t.Errorf("rows %+v", r.Rows)
			}
			if r.Machine.Kernel == "" || r.Machine.CPUs == 0 {
				t.Errorf("machine %+v", r.Machine)
			}
			if !strings.Contains(progress.String(), "round 1 of 1") {
				t.Errorf("progress %q", &progress)
			}
			if after := held(t); !slices.Equal(before, after) {
				t.Errorf("held %q before, %q afterwards", before, after)
			}
		})
	}
}

// Each row forwards every packet: the millions that it was given are all accounted for, and most arrive.
func TestVethRowsForward(t *testing.T) {
	needRoot(t)
	for _, c := range candidates {
		if !slices.Contains(c.scenarios, "veth") {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			r, err := Run(context.Background(), "veth", Options{
				Rows:     []string{c.name},
				Rounds:   1,
				Round:    time.Millisecond,
				Progress: io.Discard,
			})
			if err != nil {
				t.Fatal(err)
			}
			row := r.Rows[0]
			if !row.Valid || row.Sent < minRunPackets || row.Received < row.Sent/2 {
				t.Errorf("row %+v", row)
			}
		})
	}
}

func TestInterruptedScenarioLeavesNothing(t *testing.T) {
	needRoot(t)
	before := held(t)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := Run(ctx, "veth", Options{Progress: cancelOn{"warming up", cancel}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if after := held(t); !slices.Equal(before, after) {
		t.Errorf("held %q before, %q afterwards", before, after)
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
		if _, ok := c.device().(Costed); !ok {
			t.Errorf("%s is in the cost scenario but is no program", c.name)
		}
	}
}
