// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/search"
)

// trialHeader is the number of bytes of a long frame that are written for each packet. All headers are shorter.
const trialHeader = 192

// trialHold is GeneratorOptions.Hold of trials that do not measure latency. Packets leave in batches of up to 16. Without it
// the generator would wake the device's thread for each packet, and send only a few hundred thousand a second.
const trialHold = 20 * time.Microsecond

// rateShortfall is the share by which the offered rate may miss the intended one. It is large because virtual CPUs are
// stopped for a moment now and then. Reports have the rate that was really offered.
const rateShortfall = 0.1

// trialPath is a path for trials at given loads. The generator has one CPU, device and sink have another. The device
// receives in a kernel thread, so that its queue overflows if it is too slow. On one CPU generator and device would take
// turns, and nothing would ever be lost.
type trialPath struct {
	row *VethRow
	// generator and device are numbers of CPUs.
	generator, device int
	// sum adds up all trials.
	sum Sample
	// missing is the number of packets that were neither received nor counted as lost, less those that were counted twice.
	missing int64
}

// trialOptions are options for the packets of trials.
type trialOptions struct {
	length peer.FrameLength
	// frames is the number of different frames that take turns.
	frames int
	// stamped puts stamps into frames, so that the sink measures latency.
	stamped bool
}

// trialCPUs picks a CPU for the generator and one for the device.
func trialCPUs() (generator, device int, err error) {
	device = load.LastCPU()
	if generator = load.AnotherCPU(device); generator == device {
		return 0, 0, fmt.Errorf("find a CPU for the generator and another for the device: there is only CPU %d; "+
			"run it where two CPUs may be used (taskset(1))", device)
	}
	return generator, device, nil
}

// openTrialPath builds a path through a candidate's device. The caller must call Close, also after an error.
func openTrialPath(ctx context.Context, c peer.Candidate, o Options, t trialOptions) (p *trialPath, err error) {
	p = &trialPath{sum: Sample{Lost: map[string]uint64{}}}
	if p.generator, p.device, err = trialCPUs(); err != nil {
		return p, err
	}
	common, err := load.UDPFrames(t.frames, t.length.Sizes()...)
	if err != nil {
		return p, err
	}
	p.row = &VethRow{Label: c.Name, Opts: VethOptions{Frames: common, CPU: p.device, SeparateCPU: true}}
	if c.Device != nil {
		o.device.Size, o.device.CPUs = int(t.length), []int{p.device}
		p.row.Device = c.Device(o.DeviceOptions())
	}
	frames, err := p.row.BuildPath()
	if err != nil {
		return p, err
	}
	g := load.GeneratorOptions{Frames: frames, From: p.row.Path.Source, CPU: p.generator, Stamp: t.stamped, Realtime: true}
	shortest, longest := lengthRange(frames)
	if longest > trialHeader {
		g.Header = trialHeader
	}
	p.row.Opts.Sink = load.SinkOptions{MinLen: shortest}
	if t.stamped {
		g.Flows = 1
		p.row.Opts.Sink.Flows = g.Flows
	} else {
		g.Hold = trialHold
	}
	if err := p.row.Open(ctx); err != nil {
		return p, err
	}
	senders, receiver := []load.End{p.row.Path.Source, p.row.Path.Out}, p.row.Path.In
	if p.row.Device == nil {
		senders, receiver = senders[:1], p.row.Path.Sink
	}
	if err := load.SetReceiverRealtime(receiver); err != nil {
		return p, err
	}
	if p.row.Refused, err = load.WatchRefusals(senders...); err != nil {
		return p, err
	}
	p.row.Gen, err = load.NewGenerator(g)
	return p, err
}

// Close removes the path.
func (p *trialPath) Close() error {
	if p.row == nil {
		return nil
	}
	return errors.Join(p.row.Refused.Close(), p.row.Teardown())
}

// lengthRange returns the lengths of the shortest and of the longest frame.
func lengthRange(frames [][]byte) (shortest, longest int) {
	shortest = len(frames[0])
	for _, f := range frames {
		shortest, longest = min(shortest, len(f)), max(longest, len(f))
	}
	return shortest, longest
}

// trial offers a load, in packets a second, for a time, and waits until each packet has been received or counted as lost.
func (p *trialPath) trial(ctx context.Context, load float64, duration time.Duration) (Sample, error) {
	before, err := p.row.Count()
	if err != nil {
		return Sample{}, err
	}
	p.row.Gen.Pace(load)
	sent, err := p.row.Gen.Run(ctx, max(1, uint64(load*duration.Seconds())))
	if err != nil {
		return Sample{}, err
	}
	s, err := p.settled(ctx, before, sent)
	if err != nil {
		return s, err
	}
	p.sum.Sent += s.Sent
	p.sum.Received += s.Received
	p.sum.Elapsed += s.Elapsed
	for where, n := range s.Lost {
		p.sum.Lost[where] += n
	}
	p.missing += s.Missing()
	return s, nil
}

// settled reads the counters until all packets sent are accounted for, or until the counters have not changed for a while.
func (p *trialPath) settled(ctx context.Context, before PathCount, sent load.Sent) (Sample, error) {
	const quiet, pause = 200 * time.Millisecond, 2 * time.Millisecond
	last, since := int64(-1), time.Now()
	for {
		after, err := p.row.Count()
		if err != nil {
			return Sample{}, err
		}
		s := Sample{
			Sent: sent.Packets, Received: after.received - before.received, Elapsed: sent.Elapsed,
			Lost: map[string]uint64{},
		}
		for where, n := range after.lost {
			if n > before.lost[where] {
				s.Lost[where] = n - before.lost[where]
			}
		}
		missing := s.Missing()
		if missing != last {
			last, since = missing, time.Now()
		}
		if missing <= 0 || time.Since(since) > quiet {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return s, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// harnessLoss is the number of packets that the device forwarded and that were lost before the sink.
func (p *trialPath) harnessLoss(s Sample) uint64 {
	if p.row.Device == nil {
		return 0
	}
	return s.Lost[lostToSink] + s.Lost[lostAtSink]
}

// measure is a search.Measurer. Packets lost between device and sink do not count as lost by the device.
func (p *trialPath) measure(ctx context.Context, load float64, duration time.Duration) (search.Result, error) {
	s, err := p.trial(ctx, load, duration)
	if err != nil {
		return search.Result{}, err
	}
	got := s.Received + p.harnessLoss(s)
	return search.Result{Offered: s.Offered() * 1e6, Sent: s.Sent, Lost: s.Sent - min(s.Sent, got)}, nil
}

// findNDR searches for the highest load without loss. Trials of full length last as long as round.
func (p *trialPath) findNDR(ctx context.Context, round time.Duration, width float64) (search.Outcome, error) {
	const (
		minLoad, maxLoad = 1e3, 10e6
		trials           = 100
	)
	goal := search.Goal{
		ExceedRatio: 0.5, FinalDuration: round, DurationSum: 5 * round, InitialDuration: round / 4, Width: width,
	}
	// The flood warms everything up. The rate at which its packets get through is where the search begins.
	flood, err := p.measure(ctx, maxLoad, goal.InitialDuration)
	if err != nil {
		return search.Outcome{}, err
	}
	through := flood.Offered * (1 - float64(flood.Lost)/float64(max(1, flood.Sent)))
	return search.Find(ctx, goal, search.Range{
		MinLoad: minLoad, MaxLoad: maxLoad, Start: max(minLoad, through),
		Trials: trials, Time: trials * round, Shortfall: rateShortfall,
	}, p.measure)
}
