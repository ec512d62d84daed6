// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/bench/scenario"
	"culvert/internal/testbed"
)

// options are options for a short measurement of groups of scenario lb, with a small flow table.
func options(groups ...string) scenario.Options {
	return scenario.Options{Rounds: 1, Round: 5 * time.Millisecond, Progress: io.Discard, Groups: groups, Sample: 20_000}
}

// All rows balance the packets of all groups, count those that they drop, and leave nothing behind.
func TestLB(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	r, err := Scenario().Measure(t.Context(), options())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Name)
		_, group, _ := strings.Cut(row.Name, "@")
		if group == scenario.CostGroup {
			continue
		}
		if group == "tcp" {
			if c := row.Connections; !row.Valid || c == nil || c.Rate.Median <= 0 || c.Speed.Median <= 0 {
				t.Errorf("row %+v, connections %+v", row, c)
			}
			continue
		}
		want := map[string]int{"syn": 0, "million": 20_000}
		frames, other := want[group]
		if !other {
			frames = clients
		}
		if !row.Valid || row.Received == 0 || row.Received < row.Sent/2 || row.FrameSize != frameLen || row.Frames != frames {
			t.Errorf("row %+v", row)
		}
		if group == "cores-2" && len(row.CPUs) != 2 {
			t.Errorf("row %s: CPUs %v", row.Name, row.CPUs)
		}
	}
	groups, err := chosenGroups(options())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		for _, c := range candidates() {
			if g.cost {
				continue
			}
			if name := c.Name + "@" + g.name; g.has(c) != slices.Contains(names, name) {
				t.Errorf("%s: measured %t", name, !g.has(c))
			}
		}
	}
	for _, ratio := range []string{"nft-jhash@known/redirect@known", "nft-netdev@syn/nft-jhash@syn", "nft-jhash@tcp/haproxy@tcp", "culvert@known/nft-jhash@known", "culvert@tcp/haproxy@tcp"} {
		if r.Ratios[ratio] <= 0 || r.RatioSpreads[ratio].Median != r.Ratios[ratio] {
			t.Errorf("no ratio %s in %v", ratio, r.Ratios)
		}
	}
}

// It is an error if none of the selected groups has any of the named rows.
func TestLBWithoutRows(t *testing.T) {
	o := options("known")
	o.Rows = []string{"haproxy"}
	if _, err := Scenario().Measure(t.Context(), o); !errors.Is(err, scenario.ErrOption) {
		t.Errorf("error %v", err)
	}
}

// The scenario leaves nothing behind when it is interrupted, at whatever step, and the limits of connection tracking are as they
// were before.
func TestInterruptedLBLeavesNothing(t *testing.T) {
	testbed.NeedRoot(t)
	for _, when := range []string{
		"setting up nft-jhash@known", "warming up culvert@million", "warming up culvert@cores-1", "warming up culvert@tcp", "setting up lb-ring@cost",
		"warming up nft-netdev@million", "round 1 of 1: nft-netdev@cores-1", "setting up haproxy@tcp",
		"warming up haproxy@tcp", "round 1 of 1: haproxy@tcp",
	} {
		t.Run(when, func(t *testing.T) {
			testbed.CheckLeftovers(t)
			before := conntrackSettings(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, group, _ := strings.Cut(when, "@")
			o := options(group)
			o.Sample = 0
			o.Progress = testbed.CancelOn{Prefix: when, Cancel: cancel}
			o.Rows = []string{"culvert", "nft-jhash", "nft-netdev", "haproxy"}
			if _, err := Scenario().Measure(ctx, o); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			if after := conntrackSettings(t); after != before {
				t.Errorf("connection tracking was %s, is %s", before, after)
			}
		})
	}
}

// conntrackSettings are the limits of connection tracking, as text, when no measurement has raised them.
func conntrackSettings(t *testing.T) string {
	t.Helper()
	unlock, err := lockLimits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	return limitsNow(t)
}

func limitsNow(t *testing.T) string {
	t.Helper()
	var all []string
	for _, file := range []string{conntrackMax, conntrackBuckets} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.TrimSpace(string(text)))
	}
	return strings.Join(all, " ")
}

// roomForFlows raises the limits until restore is called, and never lowers them.
func TestRoomForFlows(t *testing.T) {
	testbed.NeedRoot(t)
	var most, buckets uint32 // of this machine, which may have room for many flows already
	if _, err := fmt.Sscan(conntrackSettings(t), &most, &buckets); err != nil {
		t.Fatal(err)
	}
	unlock, err := lockLimits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := limitsNow(t)
	waits, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if restore, err := roomForFlows(waits, 1); !errors.Is(err, context.DeadlineExceeded) || restore() != nil {
		t.Errorf("while somebody else has raised the limits: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	restore, err := roomForFlows(t.Context(), max(most, buckets)+1000)
	if during := limitsNow(t); err != nil || during == before {
		t.Errorf("settings %s before, %s then, error %v", before, during, err)
	}
	if err := restore(); err != nil || conntrackSettings(t) != before {
		t.Errorf("settings %s before, %s afterwards, error %v", before, conntrackSettings(t), err)
	}
	if restore, err := roomForFlows(t.Context(), 1); err != nil || restore() != nil || conntrackSettings(t) != before {
		t.Errorf("settings %s, error %v", conntrackSettings(t), err)
	}
}
