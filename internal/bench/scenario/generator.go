// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
)

// Generator is the scenario that measures generators.
func Generator() Scenario {
	return Scenario{Name: "generator", Rounds: 11, Round: 300 * time.Millisecond, Candidates: peer.CandidatesOf("generator"), Run: runGenerator}
}

// runGenerator measures the rate at which generators send packets through a veth pair into a sink, on one CPU.
func runGenerator(ctx context.Context, chosen []peer.Candidate, o Options) (*report.Report, error) {
	// The number is small because tcpreplay loads all frames before each run.
	const frames = 1024
	common, err := load.UDPFrames(frames, peer.FrameSize)
	if err != nil {
		return nil, err
	}
	rows := make([]Row, len(chosen))
	for i, c := range chosen {
		rows[i] = &sourceRow{kind: c.Name, frames: common, cpu: load.LastCPU()}
	}
	samples, err := RunRows(ctx, rows, RunOptions{Rounds: o.Rounds, Round: o.Round, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	return RateReport(rows, samples, []string{load.TcpreplaySource}), nil
}

// sourceRow measures a generator over a veth pair.
type sourceRow struct {
	// kind is load.KernelSource or load.TcpreplaySource.
	kind        string
	frames      [][]byte
	cpu         int
	tester, far *load.Netns
	from, to    load.End
	source      load.Source
	sink        *load.Sink
	// rate is the rate of the last run in packets a second, 0 before the first.
	rate float64
}

func (r *sourceRow) Name() string { return r.kind }

func (r *sourceRow) Setup(context.Context) (err error) {
	if r.tester, err = load.NewNetns(); err != nil {
		return err
	}
	if r.far, err = load.NewNetns(); err != nil {
		return err
	}
	if r.from, r.to, err = load.NewWire(r.tester, r.far, "cvsource", "cvsink", 0); err != nil {
		return err
	}
	if r.sink, err = load.NewSink(r.to, load.SinkOptions{MinLen: peer.FrameSize}); err != nil {
		return err
	}
	frames := load.Addressed(r.frames, r.to.MAC, r.from.MAC)
	r.source, err = load.NewSource(r.kind, load.GeneratorOptions{Frames: frames, From: r.from, CPU: r.cpu})
	return err
}

// firstReplayed is the number of packets of the first run, whose rate determines the length of the next.
const firstReplayed = 50_000

func (r *sourceRow) Run(ctx context.Context, round time.Duration) (s Sample, err error) {
	before, err := r.count()
	if err != nil {
		return s, err
	}
	packets := uint64(firstReplayed)
	if r.rate > 0 {
		packets = max(1, uint64(r.rate*round.Seconds()))
	}
	sent, err := r.source.Run(ctx, packets)
	if err != nil {
		return s, err
	}
	if sent.Elapsed > 0 {
		r.rate = float64(sent.Packets) / sent.Elapsed.Seconds()
	}
	if _, err := r.sink.Settled(20*time.Millisecond, 2*time.Second); err != nil {
		return s, err
	}
	after, err := r.count()
	if err != nil {
		return s, err
	}
	s = Sample{Sent: sent.Packets, Received: after.received - before.received, Elapsed: sent.Elapsed, Lost: map[string]uint64{}}
	for where, n := range after.lost {
		s.Lost[where] = n - before.lost[where]
	}
	return s, nil
}

// count reads the counters of packets received and lost.
func (r *sourceRow) count() (c PathCount, err error) {
	seen, err := r.sink.Seen()
	if err != nil {
		return c, err
	}
	from, err := r.from.Stats()
	if err != nil {
		return c, err
	}
	to, err := r.to.Stats()
	if err != nil {
		return c, err
	}
	return PathCount{
		received: seen.Packets,
		lost:     map[string]uint64{lostToSink: from.SendDropped, lostAtSink: to.OwnDropped},
	}, nil
}

func (r *sourceRow) Teardown() error {
	var err error
	if r.source != nil {
		err = r.source.Close()
	}
	if r.sink != nil {
		err = errors.Join(err, r.sink.Close())
	}
	for _, s := range []*load.Netns{r.tester, r.far} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}

// Describe implements described.
func (r *sourceRow) Describe(row *report.Row) {
	row.FrameSize, row.CPUs, row.Frames = peer.FrameSize, []int{r.cpu}, len(r.frames)
}
