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

	"culvert/internal/lab"
)

// ErrUnknown marks a scenario or a row that does not exist.
var ErrUnknown = errors.New("unknown")

// Options says which rows of a scenario to measure and how. The zero value of each field but Progress is the
// scenario's default.
type Options struct {
	// Rows are the names of rows, all of the scenario's if empty.
	Rows []string
	// Rounds is how often each row is measured.
	Rounds int
	// Round is about how long one round of one row takes.
	Round time.Duration
	// Router is the file name of the reference router that scenario veth starts, by default what 'culvert lab build'
	// has built.
	Router string
	// Lab is the name of the lab that scenario scion3 measures in, scion3 if empty.
	Lab string
	// Progress takes a line for each step.
	Progress io.Writer

	lab *labPath
}

const (
	// frameSize is that of the published figures, in bytes with the Ethernet header.
	frameSize = 138
	// coldFrames is how many different packets take turns: eight times as many as culvert's cache of hop fields has
	// entries, so that a packet of the same kind is long forgotten when its turn comes again.
	coldFrames = 32768
)

// candidate is a row that scenarios can have.
type candidate struct {
	name string
	// device makes the device under test, nil for none.
	device func(o Options) Device
	// scenarios lists those that measure it.
	scenarios []string
	// alone, paced and note are as for vethRow.
	alone, paced bool
	note         string
}

// candidates are all rows, in the order of reports. Names are stable.
var candidates = []candidate{
	{name: "direct", scenarios: []string{"veth"}},
	{name: "bridge", scenarios: []string{"veth"}, device: func(Options) Device { return &bridge{} }},
	{name: "redirect", scenarios: []string{"veth", "cost"}, device: func(Options) Device { return &redirect{} }},
	// culvert watches tracepoints that all devices pass through.
	{name: "culvert-nomac", scenarios: []string{"veth", "cost"}, alone: true, device: func(Options) Device {
		return &culvert{traffic: scionTraffic{cold: true, size: frameSize}, skipMAC: true}
	}},
	{name: "culvert-cold", scenarios: []string{"veth", "cost"}, alone: true, device: func(Options) Device {
		return &culvert{traffic: scionTraffic{cold: true, size: frameSize}}
	}},
	{name: "culvert-warm", scenarios: []string{"veth", "cost"}, alone: true, device: func(Options) Device {
		return &culvert{traffic: scionTraffic{size: frameSize}}
	}},
	{name: "reference", scenarios: []string{"veth"}, paced: true, device: func(o Options) Device {
		return &reference{traffic: scionTraffic{cold: true, size: frameSize}, program: o.Router}
	}},
	{name: "reference-1cpu", scenarios: []string{"veth"}, paced: true, device: func(o Options) Device {
		return &reference{traffic: scionTraffic{cold: true, size: frameSize}, program: o.Router, cpus: []int{LastCPU()}}
	}},
	{name: "culvert-switch-cold", scenarios: []string{"cost"}, device: func(Options) Device {
		return &culvert{traffic: scionTraffic{cold: true, crossing: true, size: frameSize}}
	}},
	{
		name: "culvert", scenarios: []string{"scion3"}, alone: true,
		note:   "flooded with all that the generator can send, on one CPU with it",
		device: func(o Options) Device { return &labRouter{at: o.lab, kind: lab.Culvert} },
	},
	{name: "reference", scenarios: []string{"scion3"}, alone: true, paced: true, device: func(o Options) Device {
		return &labRouter{at: o.lab, kind: lab.Reference}
	}},
}

// Scenarios lists the names that Run takes.
func Scenarios() []string { return []string{"veth", "cost", "scion3"} }

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

// Run measures the rows of a scenario beside each other. Nothing is left of it afterwards, also when ctx ends.
func Run(ctx context.Context, scenario string, o Options) (report *Report, err error) {
	if !slices.Contains(Scenarios(), scenario) {
		return nil, fmt.Errorf("%w scenario %q: there are %s", ErrUnknown, scenario, strings.Join(Scenarios(), ", "))
	}
	chosen, err := choose(scenario, o.Rows)
	if err != nil {
		return nil, err
	}
	frames, err := UDPFrames(coldFrames, frameSize)
	if err != nil {
		return nil, err
	}
	v := vethOptions{Frames: frames, Sink: SinkOptions{MinLen: frameSize}, CPU: LastCPU()}
	if scenario == "scion3" {
		if o.lab, err = openLabPath(o.Lab); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, o.lab.close()) }()
		v.On, v.Sink = &o.lab.Path, o.lab.sink
	}
	machine := thisMachine(v.CPU)
	rows := make([]*vethRow, len(chosen))
	for i, c := range chosen {
		rows[i] = &vethRow{name: c.name, alone: c.alone, paced: c.paced, note: c.note, opts: v}
		if c.device != nil {
			rows[i].device = c.device(o)
		}
	}
	switch scenario {
	case "cost":
		report, err = runCost(ctx, rows, o)
	case "scion3":
		report, err = runScion3(ctx, rows, o)
	default:
		report, err = runVeth(ctx, rows, o)
	}
	if err != nil {
		return nil, err
	}
	report.Machine = machine
	return report, nil
}

// choose finds the rows of a scenario with the names given, or all of them.
func choose(scenario string, names []string) ([]candidate, error) {
	var all, chosen []candidate
	for _, c := range candidates {
		if slices.Contains(c.scenarios, scenario) {
			all = append(all, c)
		}
	}
	known := RowNames(scenario)
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%w row %q of scenario %s: there are %s", ErrUnknown, name, scenario,
				strings.Join(known, ", "))
		}
	}
	for _, c := range all {
		if slices.Contains(names, c.name) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

// runVeth measures how many packets a second come out at the far end.
func runVeth(ctx context.Context, rows []*vethRow, o Options) (*Report, error) {
	if o.Rounds == 0 {
		o.Rounds = 15
	}
	if o.Round == 0 {
		o.Round = 300 * time.Millisecond
	}
	return runRates(ctx, "veth", rows, o, "redirect", "bridge", "reference")
}

// runScion3 is runVeth in a lab, whose router is another one for each row.
func runScion3(ctx context.Context, rows []*vethRow, o Options) (*Report, error) {
	if o.Rounds == 0 {
		o.Rounds = 3
	}
	if o.Round == 0 {
		o.Round = time.Second
	}
	return runRates(ctx, "scion3", rows, o, "reference")
}

// runRates measures rows in turn, and compares them with those named in against.
func runRates(ctx context.Context, scenario string, rows []*vethRow, o Options, against ...string) (*Report, error) {
	all := make([]Row, len(rows))
	for i, r := range rows {
		all[i] = r
	}
	samples, err := runRows(ctx, all, RunOptions{Rounds: o.Rounds, Round: o.Round, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	return rateReport(scenario, all, samples, against), nil
}

// runCost measures programs by themselves, each attached in a path of its own as for runVeth.
func runCost(ctx context.Context, rows []*vethRow, o Options) (report *Report, err error) {
	// The slowest of our programs takes about 300 ns for a packet, the wrapper and the empty program little.
	const costOfRun = 400 * time.Nanosecond
	c := CostOptions{Rounds: o.Rounds, Repeat: int(o.Round / costOfRun), CPU: LastCPU()}
	c.Progress = func(round, rounds int) {
		if round%5 == 0 || round == rounds {
			fmt.Fprintf(o.Progress, "round %d of %d\n", round, rounds)
		}
	}
	var subjects []Subject
	for _, r := range rows {
		defer func() {
			if downErr := r.Teardown(); downErr != nil {
				err = errors.Join(err, fmt.Errorf("take %s down: %w", r.name, downErr))
			}
		}()
		fmt.Fprintf(o.Progress, "setting up %s\n", r.name)
		frames, err := r.lay()
		if err == nil {
			err = r.attach(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("set %s up: %w", r.name, err)
		}
		costed, ok := r.device.(Costed)
		if !ok {
			return nil, fmt.Errorf("set %s up: it is not an XDP program whose cost can be measured", r.name)
		}
		prog, verdict := costed.Program()
		subjects = append(subjects, Subject{Name: r.name, Program: prog, Frames: frames, From: r.path.In, Verdict: verdict})
	}
	costs, err := Cost(ctx, c, subjects...)
	if err != nil {
		return nil, err
	}
	return costReport("cost", costs), nil
}
