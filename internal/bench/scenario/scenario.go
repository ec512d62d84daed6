// SPDX-License-Identifier: Apache-2.0

// Package scenario measures rows beside each other. A row is a device on a path, and the rows of a scenario take turns.
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

// ErrOption marks an option that the scenario does not have, or a value that it cannot have.
var ErrOption = errors.New("option")

// Options says which rows of a scenario to measure and how. The zero value of each field but Progress stands for the
// scenario's default.
type Options struct {
	// Rows are names of rows. Empty stands for all rows of the scenario.
	Rows []string
	// Sizes are frame lengths, in bytes without the frame check sequence, or one of the words imix and min.
	Sizes []string
	// CPUs are numbers of CPUs for generator, device and sink of scenario veth.
	CPUs []int
	// Rounds is how often each row is measured. Scenario veth measures all but its first group half as often.
	Rounds int
	// Round is the approximate duration of one measurement.
	Round time.Duration
	// Router is the path of the reference router that scenario veth starts, by default that of 'culvert lab build'.
	Router string
	// Lab is the name of the lab that scenario scion3 measures in, by default scion3.
	Lab string
	// Groups are groups of scenarios route, filter and lb. Empty stands for all.
	Groups []string
	// Nodes are numbers of nodes of scenario fleet.
	Nodes []int
	// Progress receives a line for each step.
	Progress io.Writer

	// Prefixes is the file with a full routing table, by default that of 'culvert lab build'.
	Prefixes string
	// Sample makes large tables smaller: it is the number of prefixes of each family that scenario route takes from
	// Prefixes, the number of prefixes in the largest set of scenario filter, and the number of flows in the largest table
	// of scenario lb, and the number of prefixes in the set of scenario fleet. 0 stands for the full size.
	Sample int

	device peer.DeviceOptions
}

// DeviceOptions are the options for the devices of rows.
func (o Options) DeviceOptions() peer.DeviceOptions {
	d := o.device
	d.Router = o.Router
	return d
}

// Scenario is a set of rows and a way to measure them.
type Scenario struct {
	Name string
	// Rounds and Round are the defaults of the options of the same name.
	Rounds int
	Round  time.Duration
	// Candidates are the rows, in the order of reports. Their names are stable.
	Candidates []peer.Candidate
	// Run measures the chosen rows, which are in the order of Candidates. It sets all fields of the report but Scenario and
	// Machine.
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

// Choose returns the rows with the given names, in the order of reports. No names stand for all rows but those that are only
// measured by name.
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

// A round outside these bounds is a mistake.
const (
	ShortestRound = time.Millisecond
	longestRound  = time.Hour
)

// check returns an error for an option that the scenario does not have. To ignore it would mislead.
func (o Options) check(scenario string) error {
	for _, opt := range []struct {
		flag      string
		given     bool
		scenarios []string
	}{
		{"--size", len(o.Sizes) > 0, []string{"veth", "ndr", "latency"}},
		{"--cpus", len(o.CPUs) > 0, []string{"veth"}},
		{"--groups", len(o.Groups) > 0, []string{"route", "filter", "lb"}},
		{"--nodes", len(o.Nodes) > 0, []string{"fleet"}},
		{"--lab", o.Lab != "", []string{"scion3"}},
	} {
		if opt.given && !slices.Contains(opt.scenarios, scenario) {
			return fmt.Errorf("%w %s is not for scenario %s, only for %s: leave it out", ErrOption, opt.flag, scenario,
				strings.Join(opt.scenarios, ", "))
		}
	}
	if o.Round != 0 && (o.Round < ShortestRound || o.Round > longestRound) {
		return fmt.Errorf("%w --seconds %v: give %v to %v", ErrOption, o.Round.Seconds(), ShortestRound.Seconds(),
			longestRound.Seconds())
	}
	return nil
}

// Measure measures rows beside each other. It leaves nothing behind, also when ctx ends.
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
	// The load average in the report is that from before the measurement.
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
