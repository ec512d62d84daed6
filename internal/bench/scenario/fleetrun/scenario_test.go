// SPDX-License-Identifier: Apache-2.0

package fleetrun

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
	"culvert/internal/cluster/access"
	"culvert/internal/cluster/server"
	"culvert/internal/testbed"
)

// TestMain runs the tests, or a member of etcd as 'culvert cluster serve' does, since members are run by the program that measures.
func TestMain(m *testing.M) {
	load.AvoidRealtime = true
	if len(os.Args) > 2 && os.Args[1] == "cluster" && os.Args[2] == "serve" {
		if err := serve(os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func serve(args []string) error {
	var o server.Options
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	dir := f.String("dir", "", "")
	f.StringVar(&o.Name, "name", "", "")
	f.StringVar(&o.Data, "data", "", "")
	f.StringVar(&o.Listen, "listen", "", "")
	f.Func("member", "", func(text string) error {
		m, err := server.ParseMember(text)
		o.Members = append(o.Members, m)
		return err
	})
	if err := f.Parse(args); err != nil {
		return err
	}
	o.Cluster, o.Files = clusterName, access.FilesIn(*dir, access.MemberFile)
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return server.Serve(ctx, o)
}

// short are options for a small fleet and a small set.
func short(rows ...string) scenario.Options {
	return scenario.Options{Nodes: []int{20}, Rounds: 1, Round: 500 * time.Millisecond, Sample: 20_000, Rows: rows, Progress: io.Discard}
}

// All rows measure something, all nodes converge, and nothing is left.
func TestFleet(t *testing.T) {
	testbed.NeedRoot(t)
	r, err := Scenario().Measure(t.Context(), short())
	if err != nil {
		t.Fatal(err)
	}
	want := Scenario().RowNames()
	if len(r.Rows) != len(want) {
		t.Fatalf("%d rows of %d", len(r.Rows), len(want))
	}
	positive := map[string][]string{
		"urgent": {"in force, p50", "in force, last", "the operator knows"}, "apply": {"in all", "checked by nodes and written"},
		"look": {"fleet status", "fleet where"}, "quiet": {"memory of a member"}, "idle": {"memory of a node"},
		"restart": {"back, with the state written, p50", "requests in all", "requests, most in 100 ms", "connections"},
		"sets":    {"whole set: in force", "whole set: read by a node, least", "1 % changed: read by a node, most"},
	}
	for n, row := range r.Rows {
		name, variant, _ := strings.Cut(row.Name, "@")
		if name != want[n] || variant != "nodes20" || !row.Valid || row.Fleet == nil || row.Fleet.Nodes != 20 {
			t.Errorf("row %+v", row)
			continue
		}
		for _, figure := range positive[name] {
			if median(&row, figure) <= 0 || len(row.Samples[figure]) != 1 {
				t.Errorf("%s has no %q: %+v", row.Name, figure, row.Fleet)
			}
		}
	}
	sets := r.Rows[len(r.Rows)-1]
	if whole, changed := median(&sets, "whole set: read by a node, most"), median(&sets, "1 % changed: read by a node, most"); changed > whole/2 {
		t.Errorf("1 %% changed takes %.0f KiB of %.0f", changed, whole)
	}
	var table strings.Builder
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "| urgent@nodes20 ") {
		t.Errorf("table %s, %v", table.String(), err)
	}
	leftovers(t)
}

func median(row *report.Row, figure string) float64 {
	i := slices.IndexFunc(row.Fleet.Figures, func(f report.FleetFigure) bool { return f.Name == figure })
	if i < 0 {
		return 0
	}
	return row.Fleet.Figures[i].Spread.Median
}

// leftovers fails if a member of etcd runs.
func leftovers(t *testing.T) {
	t.Helper()
	out, _ := exec.Command("pgrep", "-P", fmt.Sprint(os.Getpid()), "-f", "cluster serve").CombinedOutput() // status 1 for none
	if len(out) > 0 {
		t.Errorf("members run still: %s", out)
	}
}

// An interrupt ends the fleet and etcd.
func TestInterrupted(t *testing.T) {
	testbed.NeedRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := short("urgent")
	o.Progress = testbed.CancelOn{Prefix: "starting 20 nodes", Cancel: cancel}
	if _, err := Scenario().Measure(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	leftovers(t)
}

// Numbers of nodes that make no fleet are refused.
func TestNumbers(t *testing.T) {
	for _, n := range []int{0, 1, mostNodes + 1} {
		if _, err := Scenario().Measure(t.Context(), scenario.Options{Nodes: []int{n}, Progress: io.Discard}); !errors.Is(err, scenario.ErrOption) {
			t.Errorf("%d nodes: %v", n, err)
		}
	}
}

// A node refuses a chunk that is not what its name says, or not what other nodes have.
func TestContent(t *testing.T) {
	c := newContent()
	if err := c.check("00", []byte("nothing")); err == nil {
		t.Error("a chunk with another hash is taken")
	}
	c.chunks["00"] = []byte("something")
	if c.check("00", []byte("something")) != nil || c.check("00", []byte("else")) == nil {
		t.Error("chunks are not compared")
	}
}

// The waits of one step are left out of a time as those of several are.
func TestTold(t *testing.T) {
	for text, want := range map[string]int{"2 of 5 nodes in 1 step\n": 1, "20 of 20 nodes in 5 steps\n": 5, "revision 2: all\n": 0} {
		var out told
		if _, err := out.Write([]byte(text)); err != nil || out.steps() != want {
			t.Errorf("%q: %d steps, want %d, %v", text, out.steps(), want, err)
		}
	}
}
