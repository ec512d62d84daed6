// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bench/report"
	"culvert/internal/bpfobj"
)

// Verdicts of XDP programs: enum xdp_action in include/uapi/linux/bpf.h.
const (
	XDPDrop     = 1
	XDPPass     = 2
	XDPTX       = 3
	XDPRedirect = 4
)

// Subject is a program to measure the cost of, with its packets.
type Subject struct {
	Name string
	// Program is an XDP program, loaded with or without support for multi-buffer packets.
	Program *ebpf.Program
	// Frames take turns: one frame is a warm flow, many are cold ones.
	Frames [][]byte
	// From is the device that packets seem to arrive on. The zero value stands for none. The device must have a registered
	// receive queue, as a veth has with an XDP program or with GRO on.
	From End
	// Verdict is the verdict that the program must return for every frame, such as XDPRedirect.
	Verdict uint32
	// Learns is set if the program keeps state of frames. It gets each frame once more before it is measured, and the measured ones in another
	// order: state that was made in the order in which it is asked for would be found in memory one after the other.
	Learns bool
}

// CostOptions says how long to measure.
type CostOptions struct {
	// Rounds is how often each subject is measured, in turn with the others. 0 stands for 21.
	Rounds int
	// Repeat is the number of packets that each subject gets in a round. 0 stands for 100,000.
	Repeat int
	// Checked is the number of frames that each subject gets once beforehand to check its verdict. 0 stands for all. The
	// rounds continue with the frame after them.
	Checked int
	// CPU is the CPU that everything runs on.
	CPU int
	// Progress, if set, is called before each round.
	Progress func(round, rounds int)
}

// CostRow is the cost of a subject, in nanoseconds a packet.
type CostRow struct {
	Name   string `json:"name"`
	Frames int    `json:"frames"`
	// Net is the subject's time less the empty program's in the same round.
	Net report.Spread `json:"ns_per_packet"`
	// Best is the shortest time of the subject less the shortest of the empty program. Disturbances of the machine affect it
	// least.
	Best float64 `json:"best_ns_per_packet"`
	// Gross and Empty are the times of the subject and of the empty program. Both include restoring the packet.
	Gross report.Spread `json:"gross_ns_per_packet"`
	Empty report.Spread `json:"empty_ns_per_packet"`
	// NetRounds and EmptyRounds are Net and Empty round by round.
	NetRounds   []float64 `json:"-"`
	EmptyRounds []float64 `json:"-"`
}

// Cost measures subjects in interleaved rounds. It restores the packet from the subject's frames before each run of the
// program. It does the same for an empty program and subtracts that time. It fails if a subject returns another verdict
// than Subject.Verdict.
func Cost(ctx context.Context, o CostOptions, subjects ...Subject) (rows []CostRow, err error) {
	err = OnThread(func() error {
		rows, err = cost(ctx, o, subjects)
		return err
	})
	return rows, err
}

// cost does the work of Cost on the calling thread, which it changes for good.
func cost(ctx context.Context, o CostOptions, subjects []Subject) (rows []CostRow, err error) {
	if o.Rounds == 0 {
		o.Rounds = 21
	}
	if o.Repeat == 0 {
		o.Repeat = 100_000
	}
	if err := Pin(o.CPU); err != nil {
		return nil, err
	}
	trials := make([]*trial, 0, len(subjects))
	defer func() {
		for _, t := range trials {
			err = errors.Join(err, t.close())
		}
	}()
	for _, s := range subjects {
		t, err := newTrial(s, o)
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", s.Name, err)
		}
		trials = append(trials, t)
	}
	for round := range o.Rounds {
		if o.Progress != nil {
			o.Progress(round+1, o.Rounds)
		}
		for _, t := range trials {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("interrupted: %w", err)
			}
			if err := t.round(o.Repeat, round%2 == 0); err != nil {
				return nil, fmt.Errorf("measure %s: %w", t.subject.Name, err)
			}
		}
	}
	for _, t := range trials {
		rows = append(rows, t.row())
	}
	return rows, nil
}

// trial is a subject under measurement.
type trial struct {
	subject Subject
	cpu     int
	table   *table
	// with calls the subject, without an empty program.
	with    *wrapper
	without *wrapper
	// gross and baseline are the times of the two, round by round, in nanoseconds a packet.
	gross    []float64
	baseline []float64
	// next is the frame that the next round begins with.
	next int
}

// wrapper is a program that restores the packet before each call of another program.
type wrapper struct {
	Cost      *ebpf.Program `ebpf:"bench_cost"`
	Empty     *ebpf.Program `ebpf:"bench_empty"`
	Restore   *ebpf.Map     `ebpf:"restore"`
	Subject   *ebpf.Map     `ebpf:"subject"`
	Templates *ebpf.Map     `ebpf:"templates"`
}

func newTrial(s Subject, o CostOptions) (*trial, error) {
	tab, err := newTable(s.Frames, 0)
	if err != nil {
		return nil, err
	}
	t := &trial{subject: s, cpu: o.CPU, table: tab}
	// A program can call another only if both support multi-buffer packets or neither does. The kernel does not say whether
	// a loaded program supports them, so both are tried.
	t.with, err = loadWrapper(tab, s.Program, unix.BPF_F_XDP_HAS_FRAGS)
	if errors.Is(err, unix.EINVAL) {
		t.with, err = loadWrapper(tab, s.Program, 0)
	}
	if err != nil {
		return nil, err
	}
	if t.without, err = loadWrapper(tab, nil, unix.BPF_F_XDP_HAS_FRAGS); err != nil {
		return nil, errors.Join(err, t.close())
	}
	err = t.check(o.Checked)
	if err == nil && s.Learns {
		if _, _, err = t.run(t.with, 0, len(s.Frames)); err == nil {
			t.table.shuffle()
			err = errors.Join(t.table.fill(t.with.Templates), t.table.fill(t.without.Templates))
		}
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// loadWrapper loads a wrapper for prog, or for the empty program if prog is nil.
func loadWrapper(tab *table, prog *ebpf.Program, flags uint32) (*wrapper, error) {
	spec, err := LoadBench()
	if err != nil {
		return nil, err
	}
	if err := tab.size(spec); err != nil {
		return nil, fmt.Errorf("prepare the cost wrapper: %w", err)
	}
	spec.Programs[BenchProgBenchCost].Flags = flags
	spec.Programs[BenchProgBenchEmpty].Flags = flags
	w := &wrapper{}
	if err := spec.LoadAndAssign(w, nil); err != nil {
		return nil, fmt.Errorf("load the cost wrapper: %w", err)
	}
	if prog == nil {
		prog = w.Empty
	}
	if err := w.Subject.Put(uint32(0), prog); err != nil {
		return nil, errors.Join(fmt.Errorf("let the cost wrapper call %s: %w", prog, err), w.close())
	}
	if err := tab.fill(w.Templates); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// run puts packets through the wrapper. Frames take turns, beginning with number first. It returns the CPU time in
// nanoseconds a packet, and the last verdict.
func (t *trial) run(w *wrapper, first, packets int) (float64, uint32, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return 0, 0, fmt.Errorf("count the CPUs: %w", err)
	}
	states := make([]BenchCostState, cpus)
	states[t.cpu].Next = uint32(first)
	if err := w.Restore.Put(uint32(0), states); err != nil {
		return 0, 0, fmt.Errorf("reset the cost wrapper: %w", err)
	}
	o := &ebpf.RunOptions{Data: t.table.base, Repeat: uint32(packets)}
	if from := t.subject.From; from.Netns != nil {
		if err := from.Netns.Enter(); err != nil {
			return 0, 0, err
		}
		o.Context = bpfobj.XDPMD{DataEnd: uint32(len(t.table.base)), IngressIfindex: uint32(from.Index)}
	}
	start, err := threadTime()
	if err != nil {
		return 0, 0, err
	}
	verdict, err := w.Cost.Run(o)
	if err != nil {
		return 0, 0, fmt.Errorf("run the program on frames of up to %d bytes: %w", len(t.table.base), err)
	}
	end, err := threadTime()
	return float64(end-start) / float64(packets), verdict, err
}

// check puts the first frames through the subject once each, all of them if frames is 0, and compares the verdicts.
func (t *trial) check(frames int) error {
	if frames == 0 || frames > len(t.table.frames) {
		frames = len(t.table.frames)
	}
	t.next = frames % len(t.table.frames)
	for i := range frames {
		_, verdict, err := t.run(t.with, i, 1)
		if err != nil {
			return err
		}
		if verdict != t.subject.Verdict {
			return fmt.Errorf("the program answered frame %d with verdict %d, not %d: it is not doing the work "+
				"that is to be measured", i, verdict, t.subject.Verdict)
		}
	}
	return nil
}

// round measures the subject and the empty program once each, in the given order.
func (t *trial) round(packets int, subjectFirst bool) error {
	order := []*wrapper{t.without, t.with}
	if subjectFirst {
		order = []*wrapper{t.with, t.without}
	}
	first := t.next
	t.next = (first + packets) % len(t.table.frames)
	for _, w := range order {
		ns, _, err := t.run(w, first, packets)
		if err != nil {
			return err
		}
		if w == t.with {
			t.gross = append(t.gross, ns)
		} else {
			t.baseline = append(t.baseline, ns)
		}
	}
	return nil
}

func (t *trial) row() CostRow {
	net := make([]float64, len(t.gross))
	for i := range net {
		net[i] = t.gross[i] - t.baseline[i]
	}
	r := CostRow{
		Name:   t.subject.Name,
		Frames: len(t.table.frames),
		Net:    report.NewSpread(net),
		Gross:  report.NewSpread(t.gross),
		Empty:  report.NewSpread(t.baseline),

		NetRounds: net, EmptyRounds: t.baseline,
	}
	r.Best = r.Gross.Min - r.Empty.Min
	return r
}

func (t *trial) close() error {
	var err error
	for _, w := range []*wrapper{t.with, t.without} {
		if w != nil {
			err = errors.Join(err, w.close())
		}
	}
	return err
}

func (w *wrapper) close() error {
	return errors.Join(w.Cost.Close(), w.Empty.Close(), w.Restore.Close(), w.Subject.Close(), w.Templates.Close())
}
