// SPDX-License-Identifier: Apache-2.0

// Package insn counts the instructions that packets take, one row after the other.
package insn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
	"culvert/internal/bench/scenario"
	"culvert/internal/bench/scenario/filterrun"
	"culvert/internal/bench/scenario/lbrun"
	"culvert/internal/bench/scenario/routerun"
)

// Options says which instructions to count.
type Options struct {
	// Rows are names from Rows. Empty stands for all.
	Rows []string `json:"rows,omitempty"`
	// Load loads kernel modules in the given order, except those that are loaded already.
	Load func(modules ...string) error `json:"-"`
}

// Instructions are the counts of all rows. Each has its count in the field Instructions.
type Instructions struct {
	// Cost has the rows of programs by themselves, net of an empty program.
	Cost []report.Row `json:"cost"`
	// Path has the rows end to end: generator, device under test, sink and the kernel between them.
	Path []report.Row `json:"path"`
}

const (
	// differentFrames is the number of different packets. Each is sent once, so all packets of cold rows are cold, although
	// they would all fit into a cache.
	differentFrames = 4096
	// checkedFrames is the number of packets that check a program's verdict beforehand.
	checkedFrames = 32
	// repeat is the number of packets in a round and roundsOfRow the number of rounds of a row. Rounds are so short that most
	// end before the kernel's clock ticks, every four million instructions. The round with the fewest instructions counts.
	repeat      = 500
	roundsOfRow = 8
	// repeatPeer and roundsOfPeer are the same for devices that treat a repeated packet like a new one. More packets reduce
	// the effect of the system call that runs a program, and more rounds that of memory that is sometimes slow to allocate.
	repeatPeer   = 2_000
	roundsOfPeer = 40
	// maxPrefixes is the number of prefixes in the largest set of a filter. Guests are too slow for more.
	maxPrefixes = 100_000
	// batchLen is the number of packets that the kernel makes for a generator in one batch.
	batchLen = 64
	// lossyRounds is how many rounds of a row may lose packets. On arm64 a bridge loses some when the kernel's clock ticks at the wrong
	// moment. Such a round does not count.
	lossyRounds = 3
	// batches is the number of batches in a round, from the first packet of the first to the first packet after the last.
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

// candidates are all rows: those of programs by themselves, and those of paths end to end.
func candidates() (programs, paths []peer.Candidate) {
	programs = peer.CandidatesOf("cost")
	routers, routed := routerun.InsnRouters()
	programs = append(programs, filterrun.Costs(maxPrefixes)...)
	programs = append(programs, lbrun.Costs(lbrun.CostSize{Fresh: differentFrames})...)
	// Rows that load kernel modules come last, because loaded modules could change the counts of other rows.
	return slices.Concat(programs, routers, costliest(), captures(), sampled(), workerPrograms()), slices.Concat(pathDevices, routed, workerPaths(), lbrun.InsnCulverts(), lbrun.InsnPeers())
}

// Rows lists the names of all rows: cost/NAME for programs by themselves, path/NAME for paths end to end.
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

// Match returns the rows of patterns: names from Rows, in which * stands for any text, as in cost/lb-*. It returns an error if one is of no
// row. No patterns are no names, which stand for all rows.
func Match(patterns []string) (names []string, err error) {
	all := Rows()
	for _, pattern := range patterns {
		found := false
		for _, row := range all {
			if ok, err := path.Match(pattern, row); err != nil || !ok {
				continue
			}
			found = true
			if !slices.Contains(names, row) {
				names = append(names, row)
			}
		}
		if !found {
			return nil, CheckRows([]string{pattern})
		}
	}
	return names, nil
}

// CheckRows returns an error if one of names is not in Rows.
func CheckRows(names []string) error {
	known := Rows()
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%w row %q: there are %s", load.ErrUnknown, name, strings.Join(known, ", "))
		}
	}
	return nil
}

// Count counts the instructions of rows, one after the other. It relies on a clock that advances by a nanosecond with each
// instruction, as that of a guest does (see package guest).
func Count(ctx context.Context, o Options, progress io.Writer) (*Instructions, error) {
	if err := CheckRows(o.Rows); err != nil {
		return nil, err
	}
	selected := func(name string) bool { return len(o.Rows) == 0 || slices.Contains(o.Rows, name) }
	frames, err := load.UDPFrames(differentFrames, peer.FrameSize)
	if err != nil {
		return nil, err
	}
	v := scenario.VethOptions{Frames: frames, Sink: load.SinkOptions{MinLen: peer.FrameSize}, CPU: load.LastCPU(), Size: peer.FrameSize}
	programs, paths := candidates()
	result := &Instructions{}
	count := func(kind string, c peer.Candidate, measure func(context.Context, *scenario.VethRow) (report.Row, error)) (report.Row, bool, error) {
		if !selected(kind + "/" + c.Name) {
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
		r, err := measure(ctx, row)
		if err = errors.Join(err, row.Teardown()); err != nil {
			return r, false, fmt.Errorf("count instructions of %s/%s: %w", kind, c.Name, err)
		}
		return r, true, nil
	}
	for _, c := range programs {
		r, ok, err := count("cost", c, countProgram)
		if err != nil {
			return nil, err
		}
		if ok {
			result.Cost = append(result.Cost, r)
		}
	}
	for _, c := range paths {
		r, ok, err := count("path", c, countPath)
		if err != nil {
			return nil, err
		}
		if ok {
			result.Path = append(result.Path, r)
		}
	}
	return result, nil
}

// trafficSetter is a device that does not use the common packets.
type trafficSetter interface {
	// SetTraffic sets the packets to send, and which of them the sink counts.
	SetTraffic(v *scenario.VethOptions)
}

// moduleUser is a device that needs kernel modules.
type moduleUser interface {
	// Modules lists them, in the order in which they can be loaded.
	Modules() []string
}

// countProgram counts the instructions that a device's program takes for a packet by itself.
func countProgram(ctx context.Context, row *scenario.VethRow) (report.Row, error) {
	s, err := row.Subject(ctx)
	if err != nil {
		return report.Row{}, err
	}
	o := load.CostOptions{Rounds: roundsOfRow, Repeat: repeat, Checked: checkedFrames, CPU: row.Opts.CPU}
	if !needsNewPackets(row) {
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

// countPath counts the instructions that a packet takes from the generator to the sink. There is only one CPU, so all packets
// of a batch are received before the next batch begins. The first and the last packet of a round each begin a batch, so the
// time between them covers whole batches with their reception.
func countPath(ctx context.Context, row *scenario.VethRow) (report.Row, error) {
	rounds := roundsOfRow
	if !needsNewPackets(row) {
		rounds = roundsOfPeer
	}
	return countRounds(ctx, row, rounds)
}

// countRounds is countPath with a number of rounds.
func countRounds(ctx context.Context, row *scenario.VethRow, rounds int) (report.Row, error) {
	if err := row.Setup(ctx); err != nil {
		return report.Row{}, err
	}
	least := math.Inf(1)
	const packets = batches*batchLen + 1
	lossy := 0
	for done := 0; done < rounds; {
		before, err := row.Sink.Seen()
		if err != nil {
			return report.Row{}, err
		}
		usedBefore, err := used(row)
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
			if lossy++; got > packets || lossy > lossyRounds {
				return report.Row{}, fmt.Errorf("%d of %d packets arrived: the device, or the queues before and after it, lost some", got, packets)
			}
			continue
		}
		done++
		if _, ok := row.Device.(partial); !ok {
			least = min(least, float64(sent.Elapsed)/(packets-1))
			continue
		}
		usedAfter, err := used(row)
		if err != nil {
			return report.Row{}, err
		}
		least = min(least, float64(usedAfter-usedBefore)/packets)
	}
	if err := scenario.CheckDevice(row); err != nil {
		return report.Row{}, err
	}
	frames := len(row.Opts.Frames)
	if row.Opts.Vary > 0 { // no packet is repeated
		frames = 0
	}
	return reportRow(row, least, frames), nil
}

// partial is a device of a row that has the instructions of kernel threads alone, with those of all packets of a round.
type partial interface {
	// Used is the CPU time that the threads have used so far.
	Used() (time.Duration, error)
}

// used is the CPU time that a row is about, 0 for one of the whole path.
func used(row *scenario.VethRow) (time.Duration, error) {
	if d, ok := row.Device.(partial); ok {
		return d.Used()
	}
	return 0, nil
}

// needsNewPackets tells whether the cost of a packet depends on which packets the device has seen before.
func needsNewPackets(row *scenario.VethRow) bool {
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
