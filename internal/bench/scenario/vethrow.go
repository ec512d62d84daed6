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

// VethOptions says what the veth scenario sends.
type VethOptions struct {
	// Frames are the common frames, with room for an Ethernet header in front.
	Frames [][]byte
	// Header is how many bytes of each frame are rewritten for each packet, 0 for all of them.
	Header int
	// Sink says which frames are ours.
	Sink load.SinkOptions
	// On is a path that is there already, nil to lay one in namespaces of its own.
	Existing *peer.Path
	// CPU is where generator and device run.
	CPU int
	// Apart has the generator on another CPU, and the device receive on CPU.
	SeparateCPU bool
	// Flows, if not 0, stamps the frames with so many flows, to see what becomes of their order.
	Flows int
	// Vary, if not 0, is how many flows take turns in place of the frames' own, from VaryFrom on (see GeneratorOptions).
	Vary, VaryFrom uint32
	// Queues is how many queues each end has, 0 for one.
	Queues int
	// Size is the length of the frames in bytes, for the report.
	Size int
}

// FirstPackets is how many packets show a row's rate, before it is known.
const FirstPackets = 200_000

// How long a row waits for packets that are still on their way at the end of a round, and how often it looks. What a
// device has in its queues then counts for it: that is at most what its queues hold.
const (
	SettleLimit = 2 * time.Second
	SettleQuiet = 5 * time.Millisecond
)

// VethRow measures packets through a device, or through nothing but a wire if there is no device.
type VethRow struct {
	// Label is the row's name.
	Label string
	// Device is what is under test, nil for none.
	Device peer.Device
	// Alone devices cannot be there together with others, or slow them down, so they are attached for their own
	// rounds only.
	Exclusive bool
	// paced devices do worse the more is offered beyond what they can take, so the best rate is looked for. Their
	// generator is on another CPU.
	paced    bool
	attached bool
	prepared bool
	// Opts say what is sent.
	Opts   VethOptions
	tester *load.Netns
	under  *load.Netns
	// Path is laid by Lay, Sink put into it by Open, and Gen made by Setup.
	Path peer.Path
	Sink *load.Sink
	Gen  *load.Generator
	// Refused counts what devices on the path do not take, while a round lasts.
	Refused *load.Refusals
	// Rate is how many packets were sent in a second the last time, 0 before the first.
	Rate float64
	// Pace is how many packets a second are asked for, 0 for as many as possible.
	Pace float64
	// limit is how many packets a second were sent when as many as possible were.
	limit float64
	// Note goes with each sample; paceNote in its place, once the rate has been found.
	Note, paceNote string
}

// Name implements Row.
func (r *VethRow) Name() string { return r.Label }

// Describe says on which CPUs which frames were carried.
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
		// It runs on all.
		load.PickCPU(func(cpu int) bool { row.CPUs = append(row.CPUs, cpu); return false })
	}
	slices.Sort(row.CPUs)
	row.CPUs = slices.Compact(row.CPUs)
}

// Setup makes the namespaces, the wires, the device, the sink and the generator.
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

// generatorCPU is the CPU that sends.
func (r *VethRow) generatorCPU() int {
	if r.paced || r.Opts.SeparateCPU {
		return load.AnotherCPU(r.Opts.CPU)
	}
	return r.Opts.CPU
}

// Lay makes the namespaces and lays the path, without the device, and returns what to send along it.
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
	// The name tells the thread that receives from those of others (see ReceiveOn).
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

// Detach takes it out, if it is there.
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

// Close takes out what Open has put in.
func (r *VethRow) Close() error {
	var err error
	if r.Sink != nil {
		err = r.Sink.Close()
		r.Sink = nil
	}
	return errors.Join(err, r.Detach())
}

// Run measures one round.
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

// Send sends packets for about the length of a round, as measured the last time.
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

// Settle completes the sample once every packet has turned up, or when waiting does not help: a device that has to
// wait for a CPU holds packets back for long.
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

// Teardown lets everything go, in the reverse order of Setup.
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
