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

// trialHeader is how many bytes of a long frame are rewritten for each packet: more than all headers take.
const trialHeader = 192

// trialHold lets packets leave in batches of up to 16 where their times do not matter: without, waking the device's
// thread for each packet would limit the generator to a few hundred thousand a second.
const trialHold = 20 * time.Microsecond

// rateShortfall is the share by which the offered rate may miss the intended one. It is large because a virtual CPU now
// and then stands still for a moment. What is reported is the rate that was really offered.
const rateShortfall = 0.1

// trialPath is a path for trials at given loads. The generator has a CPU, device and sink have another. The device
// receives in a kernel thread of its own, so that its queue fills up and overflows when it is too slow. On one CPU
// generator and device would take turns, and nothing would ever be lost.
type trialPath struct {
	row *VethRow
	// generator and device are CPUs.
	generator, device int
	// sum adds up all trials.
	sum Sample
	// missing is how many packets were neither received nor counted as lost. Packets counted twice are taken off.
	missing int64
}

// trialOptions say what trials send.
type trialOptions struct {
	length peer.FrameLength
	// frames is how many different frames take turns.
	frames int
	// stamped frames tell the sink how long they took.
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

// openTrialPath lays a path through a candidate's device. Close is called after it, even when it failed.
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
	least, longest := lengthRange(frames)
	if longest > trialHeader {
		g.Header = trialHeader
	}
	p.row.Opts.Sink = load.SinkOptions{MinLen: least}
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

// lengthRange gives the lengths of the shortest and of the longest frame.
func lengthRange(frames [][]byte) (least, longest int) {
	least = len(frames[0])
	for _, f := range frames {
		least, longest = min(least, len(f)), max(longest, len(f))
	}
	return least, longest
}

// trial offers a load, in packets a second, for a time, and waits until each packet has been received or counted.
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

// settled reads the counters until all that was sent is accounted for, or until they have not changed for long.
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

// harnessLoss is how many packets got through the device and were lost before the sink.
func (p *trialPath) harnessLoss(s Sample) uint64 {
	if p.row.Device == nil {
		return 0
	}
	return s.Lost[lostToSink] + s.Lost[lostAtSink]
}

// measure is a trial as the search wants it. What the harness lost, the device did not lose.
func (p *trialPath) measure(ctx context.Context, load float64, duration time.Duration) (search.Result, error) {
	s, err := p.trial(ctx, load, duration)
	if err != nil {
		return search.Result{}, err
	}
	got := s.Received + p.harnessLoss(s)
	return search.Result{Offered: s.Offered() * 1e6, Sent: s.Sent, Lost: s.Sent - min(s.Sent, got)}, nil
}

// findNDR looks for the highest load without loss. The trials that count last as long as round.
func (p *trialPath) findNDR(ctx context.Context, round time.Duration, width float64) (search.Outcome, error) {
	const (
		minLoad, maxLoad = 1e3, 10e6
		trials           = 100
	)
	goal := search.Goal{
		ExceedRatio: 0.5, FinalDuration: round, DurationSum: 5 * round, InitialDuration: round / 4, Width: width,
	}
	// A flood warms everything up, and shows about where to begin.
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
