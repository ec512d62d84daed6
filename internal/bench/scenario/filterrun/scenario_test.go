// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
	"culvert/internal/testbed"
)

// options are options for a short measurement of groups of scenario filter.
func options(groups ...string) scenario.Options {
	return scenario.Options{Rounds: 1, Round: 5 * time.Millisecond, Progress: io.Discard, Groups: groups}
}

// Every filter drops every packet of a flood, by its own counter, with many rules and with sets. It passes all other packets.
// Nothing is left behind.
func TestFilter(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	r, err := Scenario().Measure(t.Context(), options("drop", "load-50", "rules-10", "set-none-warm", "set-10", "set-10000-cold"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Name)
		f := row.Filter
		if !row.Valid || row.Received != row.Sent || row.Sent == 0 || f == nil || f.SoftNs.Median <= 0 || f.NetRX.Median <= 0 {
			t.Errorf("row %+v, filter %+v", row, f)
			continue
		}
		name, group, _ := strings.Cut(row.Name, "@")
		// The cost of a lookup is the difference to the group without a set and with the same sources.
		if hasLookup := group == "set-10-warm" && name != "xdp-drop"; hasLookup != (f.LookupNs != nil) {
			t.Errorf("row %s: lookups %v", row.Name, f.LookupNs)
		}
	}
	for _, want := range []string{
		"xdp-drop@drop", "culvert@drop", "xdp-filter@drop", "nft-netdev@drop", "iptables-raw@drop", "iptables-legacy@drop",
		"iptables-bpf@drop", "ipset@drop", "iptables-input@drop", "iptables-conntrack@load-50", "none@rules-10-pass",
		"culvert@rules-10-pass", "iptables-raw@rules-10-drop", "ipset@set-none-warm", "ipset@set-10-warm", "culvert@set-10000-cold",
		"nft-netdev@set-10000-cold",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%s has not been measured", want)
		}
	}
	for _, ratio := range []string{"culvert@drop/iptables-raw@drop", "culvert@set-10-warm/ipset@set-10-warm"} {
		if r.Ratios[ratio] <= 0 || r.SoftRatios[ratio].Median <= 0 {
			t.Errorf("no ratio %s", ratio)
		}
	}
}

// Without a flood the client makes transactions. All packets of floods are accounted for.
func TestFloods(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	if load.AllowedCPUs() < 2 {
		t.Fatal("this needs 2 CPUs: one for the client and its server, one for the flood")
	}
	o := options("tcp")
	o.Rows = []string{"culvert", "iptables-raw"}
	r, err := Scenario().Measure(t.Context(), o)
	// On a busy machine a round may end before the client has run. Then it is measured again with longer rounds.
	hasNoTransactions := func(row report.Row) bool { return len(row.Floods) > 0 && row.Floods[0].Transactions.Median <= 0 }
	for err == nil && slices.ContainsFunc(r.Rows, hasNoTransactions) && o.Round < 2*time.Second {
		o.Round *= 8
		r, err = Scenario().Measure(t.Context(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2 {
		t.Fatalf("%d rows, want 2", len(r.Rows))
	}
	for _, row := range r.Rows {
		if !row.Valid || row.Sent == 0 || len(row.Floods) < 2 || row.Floods[0].Asked != 0 || row.Floods[0].Transactions.Median <= 0 {
			t.Errorf("row %+v", row)
		}
	}
}

// load.Cost fails unless each program returns the right verdict for all of its packets.
func TestFilterCosts(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	o := options("cost")
	o.Sample = 1000
	o.Rows = []string{"culvert"}
	r, err := Scenario().Measure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if want := len(Costs(maxPrefixes)); len(r.Rows) != want {
		t.Errorf("%d rows, want %d", len(r.Rows), want)
	}
}

// The packets of a filter that does not drop are not accounted for.
func TestFilterThatDropsNothing(t *testing.T) {
	testbed.NeedRoot(t)
	g := &group{name: "drop"}
	soft, err := load.WatchSoftirqs()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := soft.Close(); err != nil {
			t.Error(err)
		}
	}()
	row := &Row{name: "idle@drop", group: g, bed: newBed(noFilter{}, ruleSet{}), soft: soft, cpu: load.LastCPU(), from: load.LastCPU()}
	o := scenario.RunOptions{Rounds: 1, Round: time.Millisecond, Progress: io.Discard}
	samples, err := scenario.RunRows(t.Context(), []scenario.Row{row}, o)
	if err != nil {
		t.Fatal(err)
	}
	if s := samples[0][0]; s.Accounted() || s.Received != 0 {
		t.Errorf("sample %+v", s)
	}
}

// The scenario leaves nothing behind when it is interrupted, at whatever step.
func TestInterruptedFilterLeavesNothing(t *testing.T) {
	testbed.NeedRoot(t)
	for _, when := range []string{
		"trying xdp-filter", "setting up nft-netdev@drop", "warming up culvert@drop", "round 1 of 1: xdp-filter@drop", "setting up culvert@tcp",
		"round 1 of 1: culvert@tcp with 0.25",
	} {
		t.Run(when, func(t *testing.T) {
			testbed.CheckLeftovers(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o := options("drop", "tcp")
			o.Progress = testbed.CancelOn{Prefix: when, Cancel: cancel}
			o.Rows = []string{"culvert", "xdp-filter", "nft-netdev"}
			if _, err := Scenario().Measure(ctx, o); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		})
	}
}
