// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"culvert/internal/bench/report"
)

// vethOptions says what the veth scenario sends.
type vethOptions struct {
	// Frames are the common frames, with room for an Ethernet header in front.
	Frames [][]byte
	// Header is how many bytes of each frame are rewritten for each packet, 0 for all of them.
	Header int
	// Sink says which frames are ours.
	Sink SinkOptions
	// On is a path that is there already, nil to lay one in namespaces of its own.
	On *Path
	// CPU is where generator and device run.
	CPU int
	// Apart has the generator on another CPU, and the device receive on CPU.
	Apart bool
	// Flows, if not 0, stamps the frames with so many flows, to see what becomes of their order.
	Flows int
	// Vary, if not 0, is how many flows take turns in place of the frames' own, from VaryFrom on (see GeneratorOptions).
	Vary, VaryFrom uint32
	// Queues is how many queues each end has, 0 for one.
	Queues int
	// Size is the length of the frames in bytes, for the report.
	Size int
}

// firstPackets is how many packets show a row's rate, before it is known.
const firstPackets = 200_000

// How long a row waits for packets that are still on their way at the end of a round, and how often it looks. What a
// device has in its queues then counts for it: that is at most what its queues hold.
const (
	settleLimit = 2 * time.Second
	settleQuiet = 5 * time.Millisecond
)

// vethRow measures packets through a device, or through nothing but a wire if there is no device.
type vethRow struct {
	name   string
	device Device
	// alone devices cannot be there together with others, or slow them down, so they are attached for their own
	// rounds only.
	alone bool
	// paced devices do worse the more is offered beyond what they can take, so the best rate is looked for. Their
	// generator is on another CPU.
	paced    bool
	attached bool
	prepared bool
	opts     vethOptions
	tester   *Space
	under    *Space
	path     Path
	sink     *Sink
	gen      *Generator
	// refused counts what devices on the path do not take, while a round lasts.
	refused *refusals
	// rate is how many packets were sent in a second the last time, 0 before the first.
	rate float64
	// pace is how many packets a second are asked for, 0 for as many as possible.
	pace float64
	// limit is how many packets a second were sent when as many as possible were.
	limit float64
	// note goes with each sample; paceNote in its place, once the rate has been found.
	note, paceNote string
}

func (r *vethRow) Name() string { return r.name }

// describe says on which CPUs which frames were carried.
func (r *vethRow) describe(row *report.Row) {
	row.FrameSize = r.opts.Size
	if d, ok := r.device.(interface{ describe(row *report.Row) }); ok {
		defer d.describe(row)
	}
	row.CPUs = []int{r.opts.CPU}
	if from := r.generatorCPU(); from != r.opts.CPU {
		row.CPUs = []int{from, r.opts.CPU}
	}
	if router, ok := r.device.(*reference); ok && len(router.cpus) == 0 {
		// It runs on all.
		pickCPU(func(cpu int) bool { row.CPUs = append(row.CPUs, cpu); return false })
	}
	slices.Sort(row.CPUs)
	row.CPUs = slices.Compact(row.CPUs)
}

// Setup makes the namespaces, the wires, the device, the sink and the generator.
func (r *vethRow) Setup(ctx context.Context) error {
	frames, err := r.lay()
	if err != nil {
		return err
	}
	if d, ok := r.device.(Standing); ok {
		r.prepared = true
		if err := d.Prepare(ctx, r.path); err != nil {
			return err
		}
	}
	if !r.alone {
		if err := r.open(ctx); err != nil {
			return err
		}
	}
	o := GeneratorOptions{Frames: frames, Header: r.opts.Header, From: r.path.Source, CPU: r.generatorCPU(), Vary: r.opts.Vary, VaryFrom: r.opts.VaryFrom}
	o.Stamp, o.Flows, o.Untimed = r.opts.Flows > 0, r.opts.Flows, true
	r.gen, err = NewGenerator(o)
	return err
}

// generatorCPU is the CPU that sends.
func (r *vethRow) generatorCPU() int {
	if r.paced || r.opts.Apart {
		return anotherCPU(r.opts.CPU)
	}
	return r.opts.CPU
}

// lay makes the namespaces and lays the path, without the device, and returns what to send along it.
func (r *vethRow) lay() (frames [][]byte, err error) {
	if r.opts.On != nil {
		r.path = *r.opts.On
		return r.device.Frames(r.path, r.opts.Frames)
	}
	if r.tester, err = NewSpace(); err != nil {
		return nil, err
	}
	if r.under, err = NewSpace(); err != nil {
		return nil, err
	}
	p := &r.path
	inode, err := r.under.inode()
	if err != nil {
		return nil, err
	}
	// The name tells the thread that receives from those of others (see receiveOn).
	in := fmt.Sprintf("cvin%d", inode)
	if r.device == nil {
		p.Source, p.Sink, err = newWire(r.tester, r.under, "cvsource", in, 0, r.opts.Queues)
		return Addressed(r.opts.Frames, p.Sink.MAC, p.Source.MAC), err
	}
	if p.Source, p.In, err = newWire(r.tester, r.under, "cvsource", in, 0, r.opts.Queues); err != nil {
		return nil, err
	}
	if p.Sink, p.Out, err = newWire(r.tester, r.under, "cvsink", "cvout", 0, r.opts.Queues); err != nil {
		return nil, err
	}
	return r.device.Frames(*p, r.opts.Frames)
}

func (r *vethRow) attach(ctx context.Context) error {
	r.attached = true
	return r.device.Attach(ctx, r.path)
}

func (r *vethRow) detach() error {
	if !r.attached {
		return nil
	}
	r.attached = false
	return r.device.Detach()
}

// open puts the device and the sink into the path.
func (r *vethRow) open(ctx context.Context) (err error) {
	if r.device != nil {
		if err := r.attach(ctx); err != nil {
			return err
		}
	}
	o := r.opts.Sink
	if r.opts.Flows > 0 {
		o.Flows, o.Untimed = r.opts.Flows, true
	}
	if r.sink, err = NewSink(r.path.Sink, o); err != nil || !r.opts.Apart {
		return err
	}
	first := r.path.In
	if r.device == nil {
		first = r.path.Sink
	}
	return receiveOn(first, r.opts.CPU)
}

// close takes out what open has put in.
func (r *vethRow) close() error {
	var err error
	if r.sink != nil {
		err = r.sink.Close()
		r.sink = nil
	}
	return errors.Join(err, r.detach())
}

// Run measures one round.
func (r *vethRow) Run(ctx context.Context, round time.Duration) (s Sample, err error) {
	if r.alone {
		defer func() { err = errors.Join(err, r.close()) }()
		if err := r.open(ctx); err != nil {
			return s, err
		}
	}
	senders := []End{r.path.Source}
	if r.device != nil {
		senders = append(senders, r.path.Out)
	}
	if r.refused, err = watchRefusals(senders...); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, r.refused.Close()) }()
	if !r.paced {
		return r.send(ctx, round)
	}
	if r.rate == 0 {
		if err := r.findPace(ctx, min(round, searchRound)); err != nil {
			return s, err
		}
	}
	return r.send(ctx, pacedRounds*round)
}

// send sends packets for about the length of a round, as measured the last time.
func (r *vethRow) send(ctx context.Context, round time.Duration) (Sample, error) {
	before, err := r.count()
	if err != nil {
		return Sample{}, err
	}
	packets := uint64(firstPackets)
	if r.rate > 0 {
		packets = max(1, uint64(r.rate*round.Seconds()))
	}
	var sent Sent
	used, err := watchCPUs(func() error {
		sent, err = r.gen.Run(ctx, packets)
		return err
	})
	if err != nil {
		return Sample{}, err
	}
	if sent.Elapsed > 0 {
		r.rate = float64(sent.Packets) / sent.Elapsed.Seconds()
	}
	s, err := r.settle(ctx, before, Sample{
		Sent:    sent.Packets,
		Elapsed: sent.Elapsed,
		Asked:   r.pace,
		Use:     used,
		Note:    cmp.Or(r.paceNote, r.note),
	})
	if err != nil || r.opts.Flows == 0 {
		return s, err
	}
	order, err := r.sink.Order()
	if err != nil {
		return s, err
	}
	order = Missing(order, sent.Packets)
	s.Order = &order
	return s, nil
}

// settle completes the sample once every packet has turned up, or when waiting does not help: a device that has to
// wait for a CPU holds packets back for long.
func (r *vethRow) settle(ctx context.Context, before pathCount, s Sample) (Sample, error) {
	for end := time.Now().Add(settleLimit); ; {
		after, err := r.count()
		if err != nil {
			return s, err
		}
		s.Received = after.received - before.received
		if passed := after.passed - before.passed; r.opts.On != nil && passed > s.Sent {
			s.Others = passed - s.Sent
		}
		s.Lost = map[string]uint64{}
		for where, n := range after.lost {
			s.Lost[where] = n - before.lost[where]
		}
		if s.Accounted() || ctx.Err() != nil || time.Now().After(end) {
			return s, nil
		}
		time.Sleep(settleQuiet)
	}
}

// Teardown lets everything go, in the reverse order of Setup.
func (r *vethRow) Teardown() error {
	var err error
	if r.gen != nil {
		err = errors.Join(err, r.gen.Close())
	}
	err = errors.Join(err, r.close())
	if d, ok := r.device.(Standing); ok && r.prepared {
		err = errors.Join(err, d.Release())
	}
	for _, s := range []*Space{r.tester, r.under} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}
