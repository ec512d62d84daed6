// SPDX-License-Identifier: Apache-2.0

// Package scenario measures rows beside each other: each row is a device on a path, and the rows of a scenario take turns.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
)

// ErrOption marks an option that cannot be had.
var ErrOption = errors.New("option")

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

	// Prefixes is the file with a full table, by default what 'culvert lab build' has put beside the peers, and Sample
	// how many prefixes of each family to take of it, how many a filter's largest set has, or how many flows a balancer's
	// largest table, 0 for all.
	Prefixes string
	Sample   int

	device peer.DeviceOptions
}

// Terms are what devices are told.
func (o Options) DeviceOptions() peer.DeviceOptions {
	t := o.device
	t.Router = o.Router
	return t
}

// Scenario is a set of rows and a way to measure them.
type Scenario struct {
	Name string
	// Rounds and Round are what Options has by default.
	Rounds int
	Round  time.Duration
	// Candidates are the rows, in the order of reports. Their names are stable.
	Candidates []peer.Candidate
	// Run measures the rows chosen, in the order of Candidates, and sets all of the report but its machine.
	Run func(ctx context.Context, chosen []peer.Candidate, o Options) (*report.Report, error)
}

// RowNames lists the names of the rows, in the order of reports.
func (s Scenario) RowNames() []string {
	var names []string
	for _, c := range s.Candidates {
		names = append(names, c.Name)
	}
	return names
}

// Choose finds the rows with the names given, or all of them.
func (s Scenario) Choose(names []string) ([]peer.Candidate, error) {
	var chosen []peer.Candidate
	known := s.RowNames()
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(s.Candidates), func(c peer.Candidate) bool { return c.ByNameOnly }), nil
	}
	for _, name := range names {
		if base, _, variant := strings.Cut(name, "@"); variant && slices.Contains(known, base) {
			return nil, fmt.Errorf("%w row %q of scenario %s: choose variants of row %s with --size and --cpus", load.ErrUnknown,
				name, s.Name, base)
		}
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%w row %q of scenario %s: there are %s", load.ErrUnknown, name, s.Name,
				strings.Join(known, ", "))
		}
	}
	for _, c := range s.Candidates {
		if slices.Contains(names, c.Name) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

// Rounds shorter or longer than these are not meant.
const (
	ShortestRound = time.Millisecond
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
	if o.Round != 0 && (o.Round < ShortestRound || o.Round > longestRound) {
		return fmt.Errorf("%w --seconds %v: give %v to %v", ErrOption, o.Round.Seconds(), ShortestRound.Seconds(),
			longestRound.Seconds())
	}
	return nil
}

// Measure measures rows beside each other. Nothing is left of it afterwards, also when ctx ends.
func (s Scenario) Measure(ctx context.Context, o Options) (*report.Report, error) {
	if err := o.check(s.Name); err != nil {
		return nil, err
	}
	chosen, err := s.Choose(o.Rows)
	if err != nil {
		return nil, err
	}
	if o.Rounds == 0 {
		o.Rounds = s.Rounds
	}
	if o.Round == 0 {
		o.Round = s.Round
	}
	// The load is that before we began.
	machine := report.ThisMachine(load.LastCPU())
	shown := newProgress(o.Progress, s.Name)
	defer shown.done()
	o.Progress = shown
	r, err := s.Run(ctx, chosen, o)
	if err != nil {
		return nil, err
	}
	r.Scenario, r.Machine = s.Name, machine
	return r, nil
}
