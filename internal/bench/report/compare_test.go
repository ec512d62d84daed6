// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// phases is the speed of a machine that periodically drops to less than half, in a round. shift is the phase in which a run
// begins.
func phases(round, shift int) float64 {
	if (round+shift)/4%2 == 1 {
		return 1 / 2.3
	}
	return 1
}

// run makes a report of rows whose rates follow the machine's phases. Each row has noise of its own.
func run(rates map[string]float64, rounds, shift int) *Report {
	r := &Report{Scenario: "veth", Machine: testMachine}
	names := []string{"bridge", "redirect", "culvert-cold", "culvert-warm", "redirect@512", "culvert-cold@512"}
	noise := rand.New(rand.NewPCG(1, uint64(shift)))
	for _, name := range names {
		rate, known := rates[name]
		if !known {
			continue
		}
		var mpps []float64
		for n := range rounds {
			mpps = append(mpps, rate*phases(n, shift)*(1+0.02*noise.NormFloat64()))
		}
		s := NewSpread(mpps)
		r.Rows = append(r.Rows, Row{Name: name, FrameSize: 138, Mpps: &s, Samples: map[string][]float64{"mpps": mpps}, Valid: true})
	}
	return r
}

// usual are the rates of rows in most tests, in Mpps.
func usual() map[string]float64 {
	return map[string]float64{"bridge": 0.75, "redirect": 3.9, "culvert-cold": 1.44, "culvert-warm": 2.05}
}

func compare(t *testing.T, before, after *Report) *Comparison {
	t.Helper()
	c, err := Compare(before, after, "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// of returns the only change of a row.
func of(t *testing.T, c *Comparison, row string) Change {
	t.Helper()
	all := slices.DeleteFunc(slices.Clone(c.Changes), func(change Change) bool { return change.Row != row })
	if len(all) != 1 {
		t.Fatalf("%d changes of %s in %+v", len(all), row, c.Changes)
	}
	return all[0]
}

// A machine at another speed changes all rates, and that is no change of any row.
func TestSpeedOfMachineIsNoChange(t *testing.T) {
	slow := usual()
	for name := range slow {
		slow[name] /= 2.3
	}
	for _, shift := range []int{0, 1, 3, 5} {
		c := compare(t, run(usual(), 12, 0), run(slow, 12, shift))
		for _, row := range []string{"bridge", "culvert-cold", "culvert-warm"} {
			if got := of(t, c, row); got.Verdict != Same || got.P == nil || got.Figure != "Mpps x redirect" {
				t.Errorf("shift %d: %+v", shift, got)
			}
		}
		if got := of(t, c, "redirect"); got.Verdict != Base {
			t.Errorf("shift %d: %+v", shift, got)
		}
		if !strings.Contains(strings.Join(c.Warnings, "\n"), "another speed") {
			t.Errorf("no warning of the machine's speed in %q", c.Warnings)
		}
	}
}

// Changes are found in both directions, on a machine that changes its speed. Changes smaller than minChange are not.
func TestChangesAreFound(t *testing.T) {
	for _, tc := range []struct {
		factor float64
		want   Verdict
	}{{1.1, Faster}, {0.9, Slower}, {1.015, Same}, {0.985, Same}, {1, Same}} {
		now := usual()
		now["culvert-cold"] *= tc.factor
		c := compare(t, run(usual(), 12, 0), run(now, 12, 2))
		if got := of(t, c, "culvert-cold"); got.Verdict != tc.want {
			t.Errorf("factor %v: %+v, want %s", tc.factor, got, tc.want)
		}
		if got := of(t, c, "culvert-warm"); got.Verdict != Same {
			t.Errorf("factor %v: %+v", tc.factor, got)
		}
	}
}

// A significant difference is no change if it is small. Many rounds with little noise make small differences significant.
func TestSmallChangesAreNoChange(t *testing.T) {
	var old, now []float64
	for i := range 30 {
		old, now = append(old, 100+0.01*float64(i)), append(now, 101+0.01*float64(i))
	}
	change := changeOf("row", "ns", NewSpread(old).Median, NewSpread(now).Median)
	if change.judge(old, now, true); change.Verdict != Same || *change.P >= alpha {
		t.Errorf("%+v", change)
	}
	if !slices.IsSorted(old) || old[0] != 100 {
		t.Error("judge has modified the rounds")
	}
}

// Few rounds decide nothing, however large the difference is.
func TestFewRoundsDecideNothing(t *testing.T) {
	now := usual()
	now["culvert-cold"] *= 3
	for _, rounds := range []int{3, 4} {
		if got := of(t, compare(t, run(usual(), rounds, 0), run(now, rounds, 0)), "culvert-cold"); got.Verdict != Undecided {
			t.Errorf("%d rounds: %+v", rounds, got)
		}
	}
	if got := of(t, compare(t, run(usual(), minRounds, 0), run(now, minRounds, 0)), "culvert-cold"); got.Verdict != Faster {
		t.Errorf("%d rounds: %+v", minRounds, got)
	}
}

func TestRowsThatComeGoOrAreInvalid(t *testing.T) {
	before, after := run(usual(), 12, 0), run(usual(), 12, 0)
	before.Rows = before.Rows[1:]
	after.row("culvert-cold").Valid = false
	after.Rows = slices.DeleteFunc(after.Rows, func(row Row) bool { return row.Name == "culvert-warm" })
	c := compare(t, before, after)
	for row, want := range map[string]Verdict{"bridge": New, "culvert-warm": Gone, "culvert-cold": Invalid, "redirect": Base} {
		if got := of(t, c, row); got.Verdict != want {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	if got := c.SlowerThan(50); !slices.Equal(got, []string{"culvert-cold (invalid)"}) {
		t.Errorf("slower than 50 %%: %q", got)
	}
}

// A row that is invalid or only in one report is no base. The next usual base takes its place.
func TestChoiceOfBase(t *testing.T) {
	before, after := run(usual(), 12, 0), run(usual(), 12, 0)
	after.row("redirect").Valid = false
	if got := of(t, compare(t, before, after), "culvert-cold"); got.Figure != "Mpps x bridge" || got.Verdict != Same {
		t.Errorf("%+v", got)
	}
	after.row("bridge").Valid = false
	c := compare(t, before, after)
	if got := of(t, c, "culvert-cold"); got.Figure != "Mpps" || !strings.Contains(strings.Join(c.Warnings, "\n"), "no common row") {
		t.Errorf("%+v, warnings %q", got, c.Warnings)
	}
	after.Machine.CPU = "another"
	if got := of(t, compare(t, before, after), "culvert-cold"); got.Verdict != Undecided {
		t.Errorf("rates of two machines are compared: %+v", got)
	}
	rates := usual()
	rates["redirect@512"], rates["culvert-cold@512"] = 3, 1.3
	c = compare(t, run(rates, 12, 0), run(rates, 12, 0))
	if got := of(t, c, "redirect@512"); got.Verdict != Base {
		t.Errorf("each variant has its own base: %+v", got)
	}
	c = compare(t, workersSample(), workersSample())
	if got := of(t, c, "culvert-cold@workers2"); got.Figure != "Mpps x culvert-cold@workers0" || got.Verdict != Same {
		t.Errorf("%+v", got)
	}
	if got := of(t, c, "culvert-cold@workers0"); got.Verdict != Base {
		t.Errorf("%+v", got)
	}
	chosen, err := Compare(run(usual(), 12, 0), run(usual(), 12, 0), "culvert-warm")
	if err != nil {
		t.Fatal(err)
	}
	if got := of(t, chosen, "culvert-cold"); got.Figure != "Mpps x culvert-warm" {
		t.Errorf("%+v", got)
	}
	if _, err := Compare(before, after, "nothing"); !errors.Is(err, ErrNoBase) {
		t.Errorf("error %v", err)
	}
}

func TestOtherMachineAndScenario(t *testing.T) {
	before, after := run(usual(), 12, 0), run(usual(), 12, 0)
	after.Machine.Kernel, after.Machine.CPUs = "6.1.0", 8
	warnings := strings.Join(compare(t, before, after).Warnings, "\n")
	for _, want := range []string{"other machine: 2 CPUs", "other kernel: Linux 6.12.0, now Linux 6.1.0"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("no %q in %q", want, warnings)
		}
	}
	after.Scenario = "cost"
	if _, err := Compare(before, after, ""); err == nil || !strings.Contains(err.Error(), "different scenarios, veth and cost") {
		t.Errorf("error %v", err)
	}
}

// Costs are compared with the empty program of the same round, so a machine at half its speed changes nothing.
func TestCostsAreComparedByTheEmptyProgram(t *testing.T) {
	cost := func(ns, speed float64) *Report {
		var net, empty []float64
		noise := rand.New(rand.NewPCG(uint64(ns), 1))
		for range 12 {
			net = append(net, ns/speed*(1+0.02*noise.NormFloat64()))
			empty = append(empty, 80/speed*(1+0.02*noise.NormFloat64()))
		}
		s := NewSpread(net)
		return &Report{Scenario: "cost", Rows: []Row{{
			Name: "culvert-cold", NsPerPacket: &s, Valid: true,
			Samples: map[string][]float64{"ns_per_packet": net, "empty_ns_per_packet": empty},
		}}}
	}
	for _, tc := range []struct {
		ns   float64
		want Verdict
	}{{400, Same}, {480, Slower}, {320, Faster}} {
		got := of(t, compare(t, cost(400, 1), cost(tc.ns, 0.43)), "culvert-cold")
		if got.Verdict != tc.want {
			t.Errorf("%v ns: %+v, want %s", tc.ns, got, tc.want)
		}
	}
	slower := compare(t, cost(400, 1), cost(480, 1))
	if got := slower.SlowerThan(10); !slices.Equal(got, []string{"culvert-cold (slower)"}) {
		t.Errorf("slower than 10 %%: %q", got)
	}
	if got := slower.SlowerThan(30); got != nil {
		t.Errorf("slower than 30 %%: %q", got)
	}
}

func TestInstructionsHaveNoNoise(t *testing.T) {
	before, after := instructionSample(), instructionSample()
	*after.row("bridge").Instructions++
	*after.row("culvert-cold").Instructions--
	c := compare(t, before, after)
	for row, want := range map[string]Verdict{"redirect": Same, "bridge": Slower, "culvert-cold": Faster, "culvert-warm": Same} {
		if got := of(t, c, row); got.Verdict != want {
			t.Errorf("%+v, want %s", got, want)
		}
	}
}

// Reports without single rounds are compared by their ranges.
func TestReportsWithoutRounds(t *testing.T) {
	before, after := ndrSample(), ndrSample()
	after.row("culvert-cold@512").NDR = &Spread{9, 8.8, 9.1}
	c := compare(t, before, after)
	if got := of(t, c, "culvert-cold@512"); got.Verdict != Faster || got.Figure != "NDR x redirect" {
		t.Errorf("%+v", got)
	}
	if got := of(t, c, "culvert-cold@64"); got.Verdict != Same {
		t.Errorf("%+v", got)
	}
}

func TestOtherFrames(t *testing.T) {
	before, after := run(usual(), 12, 0), run(usual(), 12, 0)
	after.row("culvert-cold").FrameSize = 60
	if got := of(t, compare(t, before, after), "culvert-cold"); got.Verdict != Undecided {
		t.Errorf("%+v", got)
	}
}

func TestLatencyHasNoVerdict(t *testing.T) {
	c := compare(t, latencySample(), latencySample())
	for _, change := range c.Changes {
		if want := map[bool]Verdict{true: Invalid, false: Undecided}[change.Row == "bridge"]; change.Verdict != want {
			t.Errorf("%+v, want %s", change, want)
		}
	}
	// Five valid rows, three loads, two percentiles, and a line for the invalid row.
	if len(c.Changes) != 31 {
		t.Errorf("%d changes, want 31", len(c.Changes))
	}
}

func TestComparisonIsShown(t *testing.T) {
	now := usual()
	now["culvert-cold"] *= 0.8
	c := compare(t, run(usual(), 12, 0), run(now, 12, 0))
	var b bytes.Buffer
	if err := c.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| row ", "| culvert-cold | Mpps x redirect |", "-20.", "| slower  |", "\nveth: 1 slower, 2 same\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	tables(t, b.String())
	b.Reset()
	if err := c.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Changes []struct {
			Row, Verdict string
			Percent      float64 `json:"change_percent"`
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || len(got.Changes) != 4 || got.Changes[2].Verdict != "slower" ||
		got.Changes[2].Percent > -15 {
		t.Errorf("error %v, %s", err, &b)
	}
}
