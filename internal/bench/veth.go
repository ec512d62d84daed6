// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cilium/ebpf"
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

// searchRound bounds how long each rate is tried when the best is looked for.
const searchRound = 300 * time.Millisecond

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
	opts     vethOptions
	tester   *Space
	under    *Space
	path     Path
	sink     *Sink
	gen      *Generator
	// rate is how many packets were sent in a second the last time, 0 before the first.
	rate float64
	// note goes with each sample.
	note string
}

func (r *vethRow) Name() string { return r.name }

// Setup makes the namespaces, the wires, the device, the sink and the generator.
func (r *vethRow) Setup(ctx context.Context) error {
	frames, err := r.lay()
	if err != nil {
		return err
	}
	if !r.alone {
		if err := r.open(ctx); err != nil {
			return err
		}
	}
	o := GeneratorOptions{Frames: frames, Header: r.opts.Header, From: r.path.Source, CPU: r.opts.CPU}
	if r.paced {
		o.CPU = anotherCPU(o.CPU)
	}
	r.gen, err = NewGenerator(o)
	return err
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
	if r.device == nil {
		p.Source, p.Sink, err = NewWire(r.tester, r.under, "cvsource", "cvsink", 0)
		return Addressed(r.opts.Frames, p.Sink.MAC, p.Source.MAC), err
	}
	if p.Source, p.In, err = NewWire(r.tester, r.under, "cvsource", "cvin", 0); err != nil {
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
	r.sink, err = NewSink(r.path.Sink, r.opts.Sink)
	return err
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
	if r.paced && r.rate == 0 {
		if err := r.findPace(ctx, min(round, searchRound)); err != nil {
			return s, err
		}
	}
	return r.send(ctx, round)
}

// findPace looks for the offered rate at which most packets arrive, and keeps it.
func (r *vethRow) findPace(ctx context.Context, round time.Duration) error {
	const step = 1.25
	flood, err := r.send(ctx, round)
	if err != nil {
		return err
	}
	best, most, limit := 0.0, flood.Mpps(), r.rate
	// Three steps without gain end the search: fewer can be a disturbance. What arrives is at most what is offered,
	// so no rate up to the flood's own can be better.
	for pace, idle := most*1e6*step, 0; pace < limit && idle < 3; pace *= step {
		r.gen.Pace(pace)
		r.rate = pace
		s, err := r.send(ctx, round)
		if err != nil {
			return err
		}
		idle++
		if s.Mpps() > most {
			best, most, idle = pace, s.Mpps(), 0
		}
	}
	r.gen.Pace(best)
	r.rate = limit
	r.note = "flooded with all that the generator can send: no lower rate does better"
	if best > 0 {
		r.rate = best
		r.note = fmt.Sprintf("paced at %.2f Mpps, the offered rate that it does best at", best/1e6)
	}
	r.note += fmt.Sprintf("; generator on CPU %d, router on ", anotherCPU(r.opts.CPU))
	if ref, ok := r.device.(*reference); ok && len(ref.cpus) > 0 {
		r.note += fmt.Sprintf("CPU %d", ref.cpus[0])
	} else {
		r.note += "all"
	}
	return nil
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
	sent, err := r.gen.Run(ctx, packets)
	if err != nil {
		return Sample{}, err
	}
	if sent.Elapsed > 0 {
		r.rate = float64(sent.Packets) / sent.Elapsed.Seconds()
	}
	// What a device still has in its queues counts for it: that is at most what its queues hold.
	if _, err := r.sink.Settled(20*time.Millisecond, 2*time.Second); err != nil {
		return Sample{}, err
	}
	after, err := r.count()
	if err != nil {
		return Sample{}, err
	}
	s := Sample{
		Sent:     sent.Packets,
		Received: after.received - before.received,
		Elapsed:  sent.Elapsed,
		Note:     r.note,
	}
	if passed := after.passed - before.passed; r.opts.On != nil && passed > sent.Packets {
		s.Others = passed - sent.Packets
	}
	s.Lost = map[string]uint64{}
	for where, n := range after.lost {
		s.Lost[where] = n - before.lost[where]
	}
	return s, nil
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
	source, err := r.path.Source.Stats()
	if err != nil {
		return c, err
	}
	sink, err := r.path.Sink.Stats()
	if err != nil {
		return c, err
	}
	if r.device == nil {
		c.lost = map[string]uint64{lostToSink: source.SendDropped, lostAtSink: sink.ownDrops(source)}
		return c, nil
	}
	in, err := r.path.In.Stats()
	if err != nil {
		return c, err
	}
	out, err := r.path.Out.Stats()
	if err != nil {
		return c, err
	}
	c.lost = map[string]uint64{
		lostToDevice: source.SendDropped,
		lostAtDevice: in.ownDrops(source),
		lostToSink:   out.SendDropped,
		lostAtSink:   sink.ownDrops(out),
	}
	c.passed = source.SendDropped + in.Received + out.Received + seen.Other
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
	for _, s := range []*Space{r.tester, r.under} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}
