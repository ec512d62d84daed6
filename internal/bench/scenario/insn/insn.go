// SPDX-License-Identifier: Apache-2.0

// Package insn counts the instructions that a packet takes, one row after the other.
package insn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
	"culvert/internal/bench/scenario/filterrun"
	"culvert/internal/bench/scenario/lbrun"
	"culvert/internal/bench/scenario/routerun"
)

// Options says what instructions are to be counted of.
type Options struct {
	// Rows are names as Rows lists them; all of them if empty.
	Rows []string `json:"rows,omitempty"`
	// Load loads modules of the kernel, if they have not been loaded, in this order.
	Load func(modules ...string) error `json:"-"`
}

// Instructions is how many instructions packets take. Instructions of each row is set.
type Instructions struct {
	// Cost is of programs by themselves, net of an empty program.
	Cost []report.Row `json:"cost"`
	// Path is end to end: generator, device under test and sink, and the kernel between them.
	Path []report.Row `json:"path"`
}

const (
	// differentFrames is how many different packets there are. Each is sent once, so that those that are meant to be
	// cold are, without as many as a cache forgets by.
	differentFrames = 4096
	// checkedFrames is how many of them show beforehand that the program does its work.
	checkedFrames = 32
	// repeat and roundsOfRow bound how many packets a round has: so few that most rounds end before the kernel's
	// clock ticks, every four million instructions. The least of the rounds is what counts.
	repeat      = 500
	roundsOfRow = 8
	// repeatPeer and roundsOfPeer are the same for what does not care whether it has seen a packet before: the
	// more of them, the less shows of the system call that runs a program, and of memory that is to be had quickly at
	// one time and slowly at another.
	repeatPeer   = 2_000
	roundsOfPeer = 40
	// mostPrefixes is how many prefixes the largest set of a filter has: guests are too slow for more.
	mostPrefixes = 100_000
	// batchLen is how many packets the kernel makes in one go for a generator.
	batchLen = 64
	// batches is how many batches a round has, from the first packet of the first to the first of the last.
	batches = 7
)

// pathDevices are the devices that are measured end to end.
var pathDevices = []peer.Candidate{
	{Name: "direct"},
	{Name: "bridge", Device: func(peer.DeviceOptions) peer.Device { return &peer.Bridge{} }},
	{Name: "forward", Device: func(peer.DeviceOptions) peer.Device { return &peer.Forward{} }},
	{Name: "redirect", Device: func(peer.DeviceOptions) peer.Device { return &peer.Redirect{} }},
	{Name: "culvert-nomac", Device: func(peer.DeviceOptions) peer.Device {
		return &peer.Culvert{Traffic: peer.SCIONTraffic{Cold: true, Size: peer.FrameSize}, SkipMAC: true}
	}},
	{Name: "culvert-cold", Device: func(peer.DeviceOptions) peer.Device {
		return &peer.Culvert{Traffic: peer.SCIONTraffic{Cold: true, Size: peer.FrameSize}}
	}},
	{Name: "culvert-warm", Device: func(peer.DeviceOptions) peer.Device {
		return &peer.Culvert{Traffic: peer.SCIONTraffic{Size: peer.FrameSize}}
	}},
}

// candidates are all rows: programs counted by themselves, and paths end to end.
func candidates() (programs, paths []peer.Candidate) {
	programs = peer.CandidatesOf("cost")
	routers, routed := routerun.InsnRouters()
	programs = append(programs, filterrun.Costs(mostPrefixes)...)
	programs = append(programs, lbrun.Costs(lbrun.CostSize{Fresh: differentFrames})...)
	// What they need of the kernel comes last, so that no other row is counted with it.
	return slices.Concat(programs, routers, costliest()), slices.Concat(pathDevices, routed, lbrun.InsnCulverts(), lbrun.InsnPeers())
}

// Rows lists the names of rows that instructions can be counted of: those of scenario cost and of routers as
// cost/NAME, those end to end as path/NAME.
func Rows() []string {
	var names []string
	programs, paths := candidates()
	for _, c := range programs {
		names = append(names, "cost/"+c.Name)
	}
	for _, c := range paths {
		names = append(names, "path/"+c.Name)
	}
	return names
}

// CheckRows returns an error if there is no such row.
func CheckRows(names []string) error {
	known := Rows()
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%w row %q: there are %s", load.ErrUnknown, name, strings.Join(known, ", "))
		}
	}
	return nil
}

// Count measures rows one after the other. It takes the clock to count instructions, one a nanosecond,
// which only that of a guest does.
func Count(ctx context.Context, o Options, progress io.Writer) (*Instructions, error) {
	if err := CheckRows(o.Rows); err != nil {
		return nil, err
	}
	wanted := func(name string) bool { return len(o.Rows) == 0 || slices.Contains(o.Rows, name) }
	frames, err := load.UDPFrames(differentFrames, peer.FrameSize)
	if err != nil {
		return nil, err
	}
	v := scenario.VethOptions{Frames: frames, Sink: load.SinkOptions{MinLen: peer.FrameSize}, CPU: load.LastCPU(), Size: peer.FrameSize}
	programs, paths := candidates()
	result := &Instructions{}
	count := func(kind string, c peer.Candidate, one func(context.Context, *scenario.VethRow) (report.Row, error)) (report.Row, bool, error) {
		if !wanted(kind + "/" + c.Name) {
			return report.Row{}, false, nil
		}
		fmt.Fprintf(progress, "counting %s/%s\n", kind, c.Name)
		row := scenario.VethRows([]peer.Candidate{c}, scenario.Options{Progress: progress}, v)[0]
		row.Exclusive = false
		if d, ok := row.Device.(trafficSetter); ok {
			d.SetTraffic(&row.Opts)
		}
		if d, ok := row.Device.(moduleUser); ok {
			if err := o.Load(d.Modules()...); err != nil {
				return report.Row{}, false, err
			}
		}
		r, err := one(ctx, row)
		if err = errors.Join(err, row.Teardown()); err != nil {
			return r, false, fmt.Errorf("count instructions of %s/%s: %w", kind, c.Name, err)
		}
		return r, true, nil
	}
	for _, c := range programs {
		r, ok, err := count("cost", c, ofProgram)
		if err != nil {
			return nil, err
		}
		if ok {
			result.Cost = append(result.Cost, r)
		}
	}
	for _, c := range paths {
		r, ok, err := count("path", c, ofPath)
		if err != nil {
			return nil, err
		}
		if ok {
			result.Path = append(result.Path, r)
		}
	}
	return result, nil
}

// shaped devices do not get the common packets.
type trafficSetter interface {
	// Shape says what is sent and counted in their place.
	SetTraffic(v *scenario.VethOptions)
}

// loading devices need modules of the kernel.
type moduleUser interface {
	Modules() []string
}

// ofProgram counts what the program of a device takes for a packet by itself.
func ofProgram(ctx context.Context, row *scenario.VethRow) (report.Row, error) {
	s, err := row.Subject(ctx)
	if err != nil {
		return report.Row{}, err
	}
	o := load.CostOptions{Rounds: roundsOfRow, Repeat: repeat, Checked: checkedFrames, CPU: row.Opts.CPU}
	if !ofCulvert(row) {
		o.Repeat, o.Rounds = repeatPeer, roundsOfPeer
	}
	costs, err := load.Cost(ctx, o, s)
	if err == nil {
		err = scenario.CheckDevice(row)
	}
	if err != nil {
		return report.Row{}, err
	}
	return reportRow(row, costs[0].Best, costs[0].Frames), nil
}

// ofPath counts what a packet takes from the generator to the sink. The generator's times are those of a first
// packet of a batch and of another one, so that whole batches lie between them, with all that becomes of them: what
// a batch sends is received before the next begins, because there is but one CPU.
func ofPath(ctx context.Context, row *scenario.VethRow) (report.Row, error) {
	if err := row.Setup(ctx); err != nil {
		return report.Row{}, err
	}
	rounds := roundsOfRow
	if !ofCulvert(row) {
		rounds = roundsOfPeer
	}
	least := math.Inf(1)
	const packets = batches*batchLen + 1
	for range rounds {
		before, err := row.Sink.Seen()
		if err != nil {
			return report.Row{}, err
		}
		sent, err := row.Gen.Run(ctx, packets)
		if err != nil {
			return report.Row{}, err
		}
		after, err := row.Sink.Settled(scenario.SettleQuiet, scenario.SettleLimit)
		if err != nil {
			return report.Row{}, err
		}
		if got := after.Packets - before.Packets; got != packets {
			return report.Row{}, fmt.Errorf("of %d packets %d arrived: the device or the queues before and behind it lose some", packets, got)
		}
		least = min(least, float64(sent.Elapsed)/(packets-1))
	}
	if err := scenario.CheckDevice(row); err != nil {
		return report.Row{}, err
	}
	frames := len(row.Opts.Frames)
	if row.Opts.Vary > 0 { // none comes twice
		frames = 0
	}
	return reportRow(row, least, frames), nil
}

// ofCulvert tells rows that depend on what has been sent before from others.
func ofCulvert(row *scenario.VethRow) bool {
	switch d := row.Device.(type) {
	case *peer.Culvert:
		return true
	case interface{ Learns() bool }:
		return !d.Learns()
	}
	return false
}

func reportRow(row *scenario.VethRow, instructions float64, frames int) report.Row {
	// More digits would only show how the figure was divided.
	rounded := math.Round(instructions*100) / 100
	return report.Row{Name: row.Label, FrameSize: row.Opts.Size, Instructions: &rounded, Frames: frames, Valid: true}
}
