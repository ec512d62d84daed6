// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"culvert/internal/bench/report"
)

// ErrUnknown marks a scenario or a row that does not exist, ErrOption an option that cannot be had.
var (
	ErrUnknown = errors.New("unknown")
	ErrOption  = errors.New("option")
)

// Options says which rows of a scenario to measure and how. The zero value of each field but Progress is the
// scenario's default.
type Options struct {
	// Rows are the names of rows, all of the scenario's if empty.
	Rows []string
	// Sizes are the lengths of frames, in bytes without the frame check sequence, or the word imix.
	Sizes []string
	// CPUs is how many CPUs generator, device and sink of scenario veth take: the scenario's choice if empty.
	CPUs []int
	// Rounds is how often each row is measured. Scenario veth measures all but its first group half as often.
	Rounds int
	// Round is about how long one round of one row takes.
	Round time.Duration
	// Router is the file name of the reference router that scenario veth starts, by default what 'culvert lab build'
	// has built.
	Router string
	// Lab is the name of the lab that scenario scion3 measures in, scion3 if empty.
	Lab string
	// Groups are those of scenarios route, filter and lb, all if empty.
	Groups []string
	// Progress takes a line for each step.
	Progress io.Writer

	lab *labPath
	// prefixes is the file with a full table, by default what 'culvert lab build' has put beside the peers, and sample
	// how many prefixes of each family to take of it, how many a filter's largest set has, or how many flows a balancer's
	// largest table, 0 for all.
	prefixes string
	sample   int
	// size is the length of frames in bytes, 0 for frameSize.
	size int
	// cpus are those that a process under test may use, all if there are none.
	cpus []int
}

// scenario is a set of rows and a way to measure them.
type scenario struct {
	name string
	// rounds and round are what Options has by default.
	rounds int
	round  time.Duration
	// run measures the rows chosen, in the order of candidates, and sets all of the report but its machine.
	run func(ctx context.Context, chosen []candidate, o Options) (*report.Report, error)
}

// scenarios are all there are, in the order of help texts.
func scenarios() []scenario {
	return []scenario{
		{"veth", 10, 300 * time.Millisecond, runVeth},
		{"workers", 7, time.Second, runWorkers},
		{"cost", 21, 40 * time.Millisecond, runCost},
		{"scion3", 3, time.Second, runScion3},
		{"route", 7, 250 * time.Millisecond, runRoute},
		{"filter", 5, 250 * time.Millisecond, runFilter},
		{"lb", 9, 250 * time.Millisecond, runLB},
		{"ndr", 1, 200 * time.Millisecond, runNDR},
		{"latency", 3, 500 * time.Millisecond, runLatency},
		{"generator", 11, 300 * time.Millisecond, runGenerator},
	}
}

// Scenarios lists the names that Run takes.
func Scenarios() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

// Defaults says how often each scenario measures a row, and for how many seconds each time, unless told otherwise:
// text for a person.
func Defaults() (rounds, seconds string) {
	var often, long []string
	for _, s := range scenarios() {
		often = append(often, fmt.Sprintf("%d for %s", s.rounds, s.name))
		long = append(long, fmt.Sprintf("%v for %s", s.round.Seconds(), s.name))
	}
	return strings.Join(often, ", "), strings.Join(long, ", ")
}

// RowNames lists the names of a scenario's rows, in the order of reports.
func RowNames(scenario string) []string {
	var names []string
	for _, c := range candidates {
		if slices.Contains(c.scenarios, scenario) {
			names = append(names, c.name)
		}
	}
	return names
}

// Rounds shorter or longer than these are not meant.
const (
	shortestRound = time.Millisecond
	longestRound  = time.Hour
)

// check refuses options that the scenario does not have: what is given and not heeded misleads.
func (o Options) check(scenario string) error {
	for _, opt := range []struct {
		flag  string
		given bool
		of    []string
	}{
		{"--size", len(o.Sizes) > 0, []string{"veth", "ndr", "latency"}},
		{"--cpus", len(o.CPUs) > 0, []string{"veth"}},
		{"--groups", len(o.Groups) > 0, []string{"route", "filter", "lb"}},
		{"--lab", o.Lab != "", []string{"scion3"}},
	} {
		if opt.given && !slices.Contains(opt.of, scenario) {
			return fmt.Errorf("%w %s is not for scenario %s, only for %s: leave it out", ErrOption, opt.flag, scenario,
				strings.Join(opt.of, ", "))
		}
	}
	if o.Round != 0 && (o.Round < shortestRound || o.Round > longestRound) {
		return fmt.Errorf("%w --seconds %v: give %v to %v", ErrOption, o.Round.Seconds(), shortestRound.Seconds(),
			longestRound.Seconds())
	}
	return nil
}

// Run measures the rows of a scenario beside each other. Nothing is left of it afterwards, also when ctx ends.
func Run(ctx context.Context, name string, o Options) (*report.Report, error) {
	known := scenarios()
	i := slices.IndexFunc(known, func(s scenario) bool { return s.name == name })
	if i < 0 {
		return nil, fmt.Errorf("%w scenario %q: there are %s", ErrUnknown, name, strings.Join(Scenarios(), ", "))
	}
	if err := o.check(name); err != nil {
		return nil, err
	}
	s := known[i]
	chosen, err := choose(name, o.Rows)
	if err != nil {
		return nil, err
	}
	if o.Rounds == 0 {
		o.Rounds = s.rounds
	}
	if o.Round == 0 {
		o.Round = s.round
	}
	// The load is that before we began.
	machine := report.ThisMachine(LastCPU())
	shown := newProgress(o.Progress, name)
	defer shown.done()
	o.Progress = shown
	r, err := s.run(ctx, chosen, o)
	if err != nil {
		return nil, err
	}
	r.Scenario, r.Machine = name, machine
	return r, nil
}
