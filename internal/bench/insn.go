// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"culvert/internal/bench/report"
)

// InsnOptions says what instructions are to be counted of.
type InsnOptions struct {
	// Rows are names as InsnRows lists them; all of them if empty.
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
	// insnFrames is how many different packets there are. Each is sent once, so that those that are meant to be
	// cold are, without as many as a cache forgets by.
	insnFrames = 4096
	// insnChecked is how many of them show beforehand that the program does its work.
	insnChecked = 32
	// insnRepeat and insnRounds bound how many packets a round has: so few that most rounds end before the kernel's
	// clock ticks, every four million instructions. The least of the rounds is what counts.
	insnRepeat = 500
	insnRounds = 8
	// insnRepeatPeer and insnRoundsPeer are the same for what does not care whether it has seen a packet before: the
	// more of them, the less shows of the system call that runs a program, and of memory that is to be had quickly at
	// one time and slowly at another.
	insnRepeatPeer = 2_000
	insnRoundsPeer = 40
	// insnPrefixes is how many prefixes the largest set of a filter has: guests are too slow for more.
	insnPrefixes = 100_000
	// insnBatch is how many packets the kernel makes in one go for a generator.
	insnBatch = 64
	// insnBatches is how many batches a round has, from the first packet of the first to the first of the last.
	insnBatches = 7
)

// insnPaths are the devices that are measured end to end.
var insnPaths = []candidate{
	{name: "direct"},
	{name: "bridge", device: func(Terms) Device { return &bridge{} }},
	{name: "forward", device: func(Terms) Device { return &forward{} }},
	{name: "redirect", device: func(Terms) Device { return &redirect{} }},
	{name: "culvert-nomac", device: func(Terms) Device {
		return &culvert{traffic: scionTraffic{cold: true, size: frameSize}, skipMAC: true}
	}},
	{name: "culvert-cold", device: func(Terms) Device {
		return &culvert{traffic: scionTraffic{cold: true, size: frameSize}}
	}},
	{name: "culvert-warm", device: func(Terms) Device {
		return &culvert{traffic: scionTraffic{size: frameSize}}
	}},
}

// insnCandidates are all rows: programs counted by themselves, and paths end to end.
func insnCandidates() (programs, paths []candidate) {
	programs = CandidatesOf("cost")
	routers, routed := insnRoutes()
	programs = append(programs, filterCosts(insnPrefixes)...)
	programs = append(programs, lbCosts(lbCostSize{fresh: insnFrames})...)
	// What they need of the kernel comes last, so that no other row is counted with it.
	return slices.Concat(programs, routers, insnDear()), slices.Concat(insnPaths, routed, insnCulverts(), insnBalancers())
}

// InsnRows lists the names of rows that instructions can be counted of: those of scenario cost and of routers as
// cost/NAME, those end to end as path/NAME.
func InsnRows() []string {
	var names []string
	programs, paths := insnCandidates()
	for _, c := range programs {
		names = append(names, "cost/"+c.name)
	}
	for _, c := range paths {
		names = append(names, "path/"+c.name)
	}
	return names
}

// CheckInsnRows returns an error if there is no such row.
func CheckInsnRows(names []string) error {
	known := InsnRows()
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%w row %q: there are %s", ErrUnknown, name, strings.Join(known, ", "))
		}
	}
	return nil
}

// CountInstructions measures rows one after the other. It takes the clock to count instructions, one a nanosecond,
// which only that of a guest does.
func CountInstructions(ctx context.Context, o InsnOptions, progress io.Writer) (*Instructions, error) {
	if err := CheckInsnRows(o.Rows); err != nil {
		return nil, err
	}
	wanted := func(name string) bool { return len(o.Rows) == 0 || slices.Contains(o.Rows, name) }
	frames, err := UDPFrames(insnFrames, frameSize)
	if err != nil {
		return nil, err
	}
	v := vethOptions{Frames: frames, Sink: SinkOptions{MinLen: frameSize}, CPU: LastCPU(), Size: frameSize}
	programs, paths := insnCandidates()
	result := &Instructions{}
	count := func(kind string, c candidate, one func(context.Context, *vethRow) (report.Row, error)) (report.Row, bool, error) {
		if !wanted(kind + "/" + c.name) {
			return report.Row{}, false, nil
		}
		fmt.Fprintf(progress, "counting %s/%s\n", kind, c.name)
		row := vethRows([]candidate{c}, Options{Progress: progress}, v)[0]
		row.alone = false
		if d, ok := row.device.(shaped); ok {
			d.shape(&row.opts)
		}
		if d, ok := row.device.(loading); ok {
			if err := o.Load(d.modules()...); err != nil {
				return report.Row{}, false, err
			}
		}
		r, err := one(ctx, row)
		if err = errors.Join(err, row.Teardown()); err != nil {
			return r, false, fmt.Errorf("count instructions of %s/%s: %w", kind, c.name, err)
		}
		return r, true, nil
	}
	for _, c := range programs {
		r, ok, err := count("cost", c, insnOfProgram)
		if err != nil {
			return nil, err
		}
		if ok {
			result.Cost = append(result.Cost, r)
		}
	}
	for _, c := range paths {
		r, ok, err := count("path", c, insnOfPath)
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
type shaped interface {
	// shape says what is sent and counted in their place.
	shape(v *vethOptions)
}

// loading devices need modules of the kernel.
type loading interface {
	modules() []string
}

// insnOfProgram counts what the program of a device takes for a packet by itself.
func insnOfProgram(ctx context.Context, row *vethRow) (report.Row, error) {
	s, err := row.subject(ctx)
	if err != nil {
		return report.Row{}, err
	}
	o := CostOptions{Rounds: insnRounds, Repeat: insnRepeat, Checked: insnChecked, CPU: row.opts.CPU}
	if !ofCulvert(row) {
		o.Repeat, o.Rounds = insnRepeatPeer, insnRoundsPeer
	}
	costs, err := Cost(ctx, o, s)
	if err == nil {
		err = didItsWork(row)
	}
	if err != nil {
		return report.Row{}, err
	}
	return insnRow(row, costs[0].Best, costs[0].Frames), nil
}

// insnOfPath counts what a packet takes from the generator to the sink. The generator's times are those of a first
// packet of a batch and of another one, so that whole batches lie between them, with all that becomes of them: what
// a batch sends is received before the next begins, because there is but one CPU.
func insnOfPath(ctx context.Context, row *vethRow) (report.Row, error) {
	if err := row.Setup(ctx); err != nil {
		return report.Row{}, err
	}
	rounds := insnRounds
	if !ofCulvert(row) {
		rounds = insnRoundsPeer
	}
	least := math.Inf(1)
	const packets = insnBatches*insnBatch + 1
	for range rounds {
		before, err := row.sink.Seen()
		if err != nil {
			return report.Row{}, err
		}
		sent, err := row.gen.Run(ctx, packets)
		if err != nil {
			return report.Row{}, err
		}
		after, err := row.sink.Settled(settleQuiet, settleLimit)
		if err != nil {
			return report.Row{}, err
		}
		if got := after.Packets - before.Packets; got != packets {
			return report.Row{}, fmt.Errorf("of %d packets %d arrived: the device or the queues before and behind it lose some", packets, got)
		}
		least = min(least, float64(sent.Elapsed)/(packets-1))
	}
	if err := didItsWork(row); err != nil {
		return report.Row{}, err
	}
	frames := len(row.opts.Frames)
	if row.opts.Vary > 0 { // none comes twice
		frames = 0
	}
	return insnRow(row, least, frames), nil
}

// ofCulvert tells rows that depend on what has been sent before from others.
func ofCulvert(row *vethRow) bool {
	switch d := row.device.(type) {
	case *culvert:
		return true
	case interface{ learns() bool }:
		return !d.learns()
	}
	return false
}

func insnRow(row *vethRow, instructions float64, frames int) report.Row {
	// More digits would only show how the figure was divided.
	rounded := math.Round(instructions*100) / 100
	return report.Row{Name: row.name, FrameSize: row.opts.Size, Instructions: &rounded, Frames: frames, Valid: true}
}
