// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"culvert/internal/bench/report"
)

// Path is the way of packets through a device under test:
//
//	Source -> In, the device, Out -> Sink
//
// Source and In are the ends of one wire, Out and Sink those of another. Source and Sink are in the tester's
// namespace, In and Out in the device's. Without a device the only wire leads from Source to Sink.
type Path struct {
	Source, In, Out, Sink End
}

// Device is something that forwards packets from Path.In to Path.Out.
type Device interface {
	// Attach puts the device into the path. An XDP program must be on In afterwards, because that is what makes a
	// veth take packets (see Listen). Detach is called after it, even when it failed.
	Attach(ctx context.Context, p Path) error
	// Frames gives what to send through the device, which may not be attached yet: its own frames, or the
	// scenario's common ones with the Ethernet addresses that it needs.
	Frames(p Path, common [][]byte) ([][]byte, error)
	// Losses counts the packets that the device itself dropped since Attach, by reason.
	Losses() (map[string]uint64, error)
	// Detach removes all that Attach made and that closing the namespaces does not.
	Detach() error
}

// Standing is a Device with a part that stays in the path when the rest is taken out between rounds.
type Standing interface {
	Device
	// Prepare puts the part that stays into the path. Release is called after it, even when it failed.
	Prepare(ctx context.Context, p Path) error
	// Release removes what Prepare made, after the last Detach.
	Release() error
}

// Costed is a Device that is one XDP program, whose cost can be measured by itself.
type Costed interface {
	Device
	// Program is the program that Attach put on Path.In, and the verdict that it gives to the device's frames.
	Program() (prog *ebpf.Program, verdict uint32)
}

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
	// Size is the length of the frames in bytes, for the report.
	Size int
}

// Places that lose packets and count them, in a Sample.
const (
	lostToDevice = "device_queue"   // the queue into the device was full
	lostAtDevice = "device_receive" // the device's veth could not handle the packet, as in a failed redirect
	lostToSink   = "sink_queue"     // the queue into the sink was full
	lostAtSink   = "sink_receive"   // the sink's veth could not handle the packet
)

// firstPackets is how many packets show a row's rate, before it is known.
const firstPackets = 200_000

// What a device still has in its queues at the end of a round counts for it: that is at most what its queues hold.
const (
	settleQuiet = 20 * time.Millisecond
	settleLimit = 2 * time.Second
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
		slices.Sort(row.CPUs)
	}
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
	o := GeneratorOptions{Frames: frames, Header: r.opts.Header, From: r.path.Source, CPU: r.generatorCPU()}
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
		p.Source, p.Sink, err = NewWire(r.tester, r.under, "cvsource", in, 0)
		return Addressed(r.opts.Frames, p.Sink.MAC, p.Source.MAC), err
	}
	if p.Source, p.In, err = NewWire(r.tester, r.under, "cvsource", in, 0); err != nil {
		return nil, err
	}
	if p.Sink, p.Out, err = NewWire(r.tester, r.under, "cvsink", "cvout", 0); err != nil {
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
	o.Flows, o.Untimed = r.opts.Flows, true
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
	after, err := r.settled(sent.Packets, before)
	if err != nil {
		return Sample{}, err
	}
	s := Sample{
		Sent:     sent.Packets,
		Received: after.received - before.received,
		Elapsed:  sent.Elapsed,
		Asked:    r.pace,
		Note:     cmp.Or(r.paceNote, r.note),
	}
	if passed := after.passed - before.passed; r.opts.On != nil && passed > sent.Packets {
		s.Others = passed - sent.Packets
	}
	s.Use = used
	if r.opts.Flows > 0 {
		order, err := r.sink.Order()
		if err != nil {
			return s, err
		}
		order = Missing(order, sent.Packets)
		s.Order = &order
	}
	s.Lost = map[string]uint64{}
	for where, n := range after.lost {
		s.Lost[where] = n - before.lost[where]
	}
	return s, nil
}

// settled waits until nothing arrives any more and every packet sent is accounted for, at most for a while: a worker
// that the machine gives no CPU to has packets in its queue for longer than a quiet sink shows.
func (r *vethRow) settled(sent uint64, before pathCount) (after pathCount, err error) {
	for end := time.Now().Add(settleLimit); ; {
		if _, err := r.sink.Settled(settleQuiet, settleLimit); err != nil {
			return after, err
		}
		if after, err = r.count(); err != nil {
			return after, err
		}
		found := after.received - before.received
		for where, n := range after.lost {
			found += n - before.lost[where]
		}
		if found >= sent || time.Now().After(end) {
			return after, nil
		}
	}
}

// pathCount is what was received and lost since the path was laid.
type pathCount struct {
	received uint64
	lost     map[string]uint64
	// passed is how many packets the path has seen, whoever sent them.
	passed uint64
}

// count reads all counters along the path.
func (r *vethRow) count() (c pathCount, err error) {
	seen, err := r.sink.Seen()
	if err != nil {
		return c, err
	}
	c.received = seen.Packets
	c.lost = map[string]uint64{}
	// Each wire loses packets at its sender, when the receiver's queue is full, or at its receiver.
	wire := func(n int, from, to End, queue, receive string) (sender, receiver EndStats, err error) {
		refused, err := r.refused.of(n)
		if err != nil {
			return sender, receiver, err
		}
		if sender, err = from.Stats(); err != nil {
			return sender, receiver, err
		}
		receiver, err = to.Stats()
		c.lost[queue] = refused + sender.StackDropped
		c.lost[receive] = receiver.OwnDropped
		return sender, receiver, err
	}
	if r.device == nil {
		_, _, err = wire(0, r.path.Source, r.path.Sink, lostToSink, lostAtSink)
		return c, err
	}
	_, in, err := wire(0, r.path.Source, r.path.In, lostToDevice, lostAtDevice)
	if err != nil {
		return c, err
	}
	out, _, err := wire(1, r.path.Out, r.path.Sink, lostToSink, lostAtSink)
	if err != nil {
		return c, err
	}
	c.passed = c.lost[lostToDevice] + in.Received + out.Received + seen.Other
	own, err := r.device.Losses()
	maps.Copy(c.lost, own)
	return c, err
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
