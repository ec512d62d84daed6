// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/report"
)

// VethOptions describes path and packets of a VethRow.
type VethOptions struct {
	// Frames are the common frames, whose Ethernet addresses are not set.
	Frames [][]byte
	// Header is the number of bytes of each frame that are written for each packet, 0 for all of them.
	Header int
	// Sink selects the frames that the sink counts.
	Sink load.SinkOptions
	// Existing is an existing path. If it is nil, the row builds one in namespaces of its own.
	Existing *peer.Path
	// CPU is the CPU that generator and device run on.
	CPU int
	// SeparateCPU moves the generator to another CPU. The device receives on CPU in a kernel thread.
	SeparateCPU bool
	// Flows, if not 0, is the number of flows that frames are stamped with, to observe their order.
	Flows int
	// Vary and VaryFrom are those of load.GeneratorOptions.
	Vary, VaryFrom uint32
	// Queues is the number of queues of each veth, 0 for one.
	Queues int
	// Size is the length of the frames in bytes, for the report.
	Size int
}

// FirstPackets is the number of packets of a row's first round, whose rate determines the length of the next.
const FirstPackets = 200_000

// SettleLimit bounds the wait for packets that are still on their way at the end of a round. SettleQuiet is the interval at
// which counters are read meanwhile. Packets in the queues of a device count as forwarded by it; there are never more than
// the queues hold.
const (
	SettleLimit = 2 * time.Second
	SettleQuiet = 5 * time.Millisecond
)

// VethRow measures throughput through a device, or through a wire alone if there is no device.
type VethRow struct {
	// Label is the row's name.
	Label string
	// Device is the device under test, nil for none.
	Device peer.Device
	// Exclusive devices cannot be attached together with others, or slow those down. They are attached only during their own
	// rounds.
	Exclusive bool
	// paced devices forward less the more they are overloaded, so the best offered rate is searched for. Their generator is
	// on another CPU.
	paced bool
	// attached and prepared are set while Device.Detach and Preparer.Release have to be called.
	attached bool
	prepared bool
	// Opts describes path and packets.
	Opts VethOptions
	// tester and under are the namespaces of the tester and of the device under test.
	tester *load.Netns
	under  *load.Netns
	// Path is set by BuildPath, Sink by Open and Gen by Setup.
	Path peer.Path
	Sink *load.Sink
	Gen  *load.Generator
	// Refused counts the packets that devices on the path refuse, during a round.
	Refused *load.Refusals
	// Rate is the rate at which packets were sent in the last round, in packets a second, 0 before the first.
	Rate float64
	// Pace is the rate that is asked for, in packets a second, 0 for as many as possible.
	Pace float64
	// limit is the rate that the generator reached without a pace, in packets a second.
	limit float64
	// Note goes into each sample. paceNote replaces it once the pace has been found.
	Note, paceNote string
}

// Name implements Row.
func (r *VethRow) Name() string { return r.Label }

// Describe implements described.
func (r *VethRow) Describe(row *report.Row) {
	row.FrameSize = r.Opts.Size
	if d, ok := r.Device.(interface{ Describe(row *report.Row) }); ok {
		defer d.Describe(row)
	}
	row.CPUs = []int{r.Opts.CPU}
	if from := r.generatorCPU(); from != r.Opts.CPU {
		row.CPUs = []int{from, r.Opts.CPU}
	}
	if router, ok := r.Device.(*peer.Reference); ok && len(router.CPUs) == 0 {
		// The router runs on all CPUs.
		load.PickCPU(func(cpu int) bool { row.CPUs = append(row.CPUs, cpu); return false })
	}
	slices.Sort(row.CPUs)
	row.CPUs = slices.Compact(row.CPUs)
}

// Setup implements Row: it makes the namespaces, the wires, the device, the sink and the generator. The device and the sink
// of an exclusive row are left to Run.
func (r *VethRow) Setup(ctx context.Context) error {
	frames, err := r.BuildPath()
	if err != nil {
		return err
	}
	if d, ok := r.Device.(peer.Preparer); ok {
		r.prepared = true
		if err := d.Prepare(ctx, r.Path); err != nil {
			return err
		}
	}
	if !r.Exclusive {
		if err := r.Open(ctx); err != nil {
			return err
		}
	}
	o := load.GeneratorOptions{Frames: frames, Header: r.Opts.Header, From: r.Path.Source, CPU: r.generatorCPU(), Vary: r.Opts.Vary, VaryFrom: r.Opts.VaryFrom}
	o.Stamp, o.Flows, o.Untimed = r.Opts.Flows > 0, r.Opts.Flows, true
	r.Gen, err = load.NewGenerator(o)
	return err
}

// generatorCPU is the CPU of the generator.
func (r *VethRow) generatorCPU() int {
	if r.paced || r.Opts.SeparateCPU {
		return load.AnotherCPU(r.Opts.CPU)
	}
	return r.Opts.CPU
}

// BuildPath makes the namespaces and the wires, without the device. It returns the frames to send.
func (r *VethRow) BuildPath() (frames [][]byte, err error) {
	if r.Opts.Existing != nil {
		r.Path = *r.Opts.Existing
		return r.Device.Frames(r.Path, r.Opts.Frames)
	}
	if r.tester, err = load.NewNetns(); err != nil {
		return nil, err
	}
	if r.under, err = load.NewNetns(); err != nil {
		return nil, err
	}
	p := &r.Path
	inode, err := r.under.Inode()
	if err != nil {
		return nil, err
	}
	// The name is unique on the machine, as load.ReceiveOn requires.
	in := fmt.Sprintf("cvin%d", inode)
	if r.Device == nil {
		p.Source, p.Sink, err = load.NewQueuedWire(r.tester, r.under, "cvsource", in, 0, r.Opts.Queues)
		return load.Addressed(r.Opts.Frames, p.Sink.MAC, p.Source.MAC), err
	}
	if p.Source, p.In, err = load.NewQueuedWire(r.tester, r.under, "cvsource", in, 0, r.Opts.Queues); err != nil {
		return nil, err
	}
	if p.Sink, p.Out, err = load.NewQueuedWire(r.tester, r.under, "cvsink", "cvout", 0, r.Opts.Queues); err != nil {
		return nil, err
	}
	return r.Device.Frames(*p, r.Opts.Frames)
}

// Attach puts the device into the path.
func (r *VethRow) Attach(ctx context.Context) error {
	r.attached = true
	return r.Device.Attach(ctx, r.Path)
}

// Detach removes the device from the path, if it is attached.
func (r *VethRow) Detach() error {
	if !r.attached {
		return nil
	}
	r.attached = false
	return r.Device.Detach()
}

// Open puts the device and the sink into the path.
func (r *VethRow) Open(ctx context.Context) (err error) {
	if r.Device != nil {
		if err := r.Attach(ctx); err != nil {
			return err
		}
	}
	o := r.Opts.Sink
	if r.Opts.Flows > 0 {
		o.Flows, o.Untimed = r.Opts.Flows, true
	}
	if r.Sink, err = load.NewSink(r.Path.Sink, o); err != nil || !r.Opts.SeparateCPU {
		return err
	}
	first := r.Path.In
	if r.Device == nil {
		first = r.Path.Sink
	}
	return load.ReceiveOn(first, r.Opts.CPU)
}

// Close removes the sink and the device from the path.
func (r *VethRow) Close() error {
	var err error
	if r.Sink != nil {
		err = r.Sink.Close()
		r.Sink = nil
	}
	return errors.Join(err, r.Detach())
}

// Run implements Row.
func (r *VethRow) Run(ctx context.Context, round time.Duration) (s Sample, err error) {
	if r.Exclusive {
		defer func() { err = errors.Join(err, r.Close()) }()
		if err := r.Open(ctx); err != nil {
			return s, err
		}
	}
	senders := []load.End{r.Path.Source}
	if r.Device != nil {
		senders = append(senders, r.Path.Out)
	}
	if r.Refused, err = load.WatchRefusals(senders...); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, r.Refused.Close()) }()
	if !r.paced {
		return r.Send(ctx, round)
	}
	if r.Rate == 0 {
		if err := r.findPace(ctx, min(round, searchRound)); err != nil {
			return s, err
		}
	}
	return r.Send(ctx, pacedRounds*round)
}

// Send sends packets for about the duration of a round, by the rate of the last one, and returns the sample.
func (r *VethRow) Send(ctx context.Context, round time.Duration) (Sample, error) {
	before, err := r.Count()
	if err != nil {
		return Sample{}, err
	}
	packets := uint64(FirstPackets)
	if r.Rate > 0 {
		packets = max(1, uint64(r.Rate*round.Seconds()))
	}
	var sent load.Sent
	used, err := load.WatchCPUs(func() error {
		sent, err = r.Gen.Run(ctx, packets)
		return err
	})
	if err != nil {
		return Sample{}, err
	}
	if sent.Elapsed > 0 {
		r.Rate = float64(sent.Packets) / sent.Elapsed.Seconds()
	}
	s, err := r.Settle(ctx, before, Sample{
		Sent:    sent.Packets,
		Elapsed: sent.Elapsed,
		Asked:   r.Pace,
		Use:     used,
		Note:    cmp.Or(r.paceNote, r.Note),
	})
	if err != nil || r.Opts.Flows == 0 {
		return s, err
	}
	order, err := r.Sink.Order()
	if err != nil {
		return s, err
	}
	order = load.Missing(order, sent.Packets)
	s.Order = &order
	return s, nil
}

// Settle completes the sample once every packet is accounted for, at the latest after SettleLimit. A device that has to wait
// for a CPU may hold packets back for long.
func (r *VethRow) Settle(ctx context.Context, before PathCount, s Sample) (Sample, error) {
	for end := time.Now().Add(SettleLimit); ; {
		after, err := r.Count()
		if err != nil {
			return s, err
		}
		s.Received = after.received - before.received
		if passed := after.passed - before.passed; r.Opts.Existing != nil && passed > s.Sent {
			s.Others = passed - s.Sent
		}
		s.Lost = map[string]uint64{}
		for where, n := range after.lost {
			s.Lost[where] = n - before.lost[where]
		}
		if s.Accounted() || ctx.Err() != nil || time.Now().After(end) {
			return s, nil
		}
		time.Sleep(SettleQuiet)
	}
}

// Teardown implements Row.
func (r *VethRow) Teardown() error {
	var err error
	if r.Gen != nil {
		err = errors.Join(err, r.Gen.Close())
	}
	err = errors.Join(err, r.Close())
	if d, ok := r.Device.(peer.Preparer); ok && r.prepared {
		err = errors.Join(err, d.Release())
	}
	for _, s := range []*load.Netns{r.tester, r.under} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}
