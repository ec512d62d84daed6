// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"time"

	"culvert/internal/show"
	"culvert/internal/show/text"
)

// OptionError is an error in the options themselves, whatever the machine.
type OptionError string

// Error implements error.
func (e OptionError) Error() string { return string(e) }

func optionErrorf(format string, args ...any) error { return OptionError(fmt.Sprintf(format, args...)) }

// BlastOptions says what Blast sends. The zero value of a field is its default, if it has one.
type BlastOptions struct {
	// Device is an interface of the calling thread's network namespace.
	Device string
	// File is a pcap file with the frames. If it is empty, UDP describes them.
	File string
	UDP  UDPTraffic
	// DstMAC and SrcMAC, if given, replace the addresses in the frames of File.
	DstMAC, SrcMAC net.HardwareAddr
	// Rate is in packets a second, 0 for as many as possible.
	Rate float64
	// Count is the number of packets to send, 0 for no limit.
	Count uint64
	// Duration is how long to send, 0 for until ctx ends.
	Duration time.Duration
	// Stamp puts a stamp into each frame, for a sink. Every frame of a file is a flow of its own.
	Stamp bool
	// CPU is the CPU that the generator runs on, negative for the last one.
	CPU int
	// Generator is "kernel" or "tcpreplay". Empty stands for kernel.
	Generator string
	// Force allows sending from a device that a default route uses.
	Force bool
	// Progress receives a line a second.
	Progress io.Writer
}

// BlastReport says what Blast sent.
type BlastReport struct {
	Interface string  `json:"interface"`
	Generator string  `json:"generator"`
	CPU       int     `json:"cpu"`
	Frames    int     `json:"frames"`
	Packets   uint64  `json:"packets"`
	Bytes     uint64  `json:"bytes"`
	Seconds   float64 `json:"seconds"`
	// Mpps is the rate in millions of packets a second, from the first packet to the last. Asked is the rate that was asked
	// for, in the same unit.
	Mpps  float64 `json:"mpps"`
	Asked float64 `json:"asked_mpps,omitempty"`
	// Reached is false if Mpps is less than reachedShare of Asked.
	Reached bool `json:"reached"`
	// Dropped is the number of packets that the device did not take, by its own counter.
	Dropped uint64 `json:"dropped"`
}

// Blast sends packets out of a device until o.Count or o.Duration is reached or ctx ends. The end of ctx is no error.
func Blast(ctx context.Context, o BlastOptions) (r *BlastReport, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	// The device is in the network namespace of this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	netns, err := CurrentNetns()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, netns.Close()) }()
	from, err := blastDevice(netns, o)
	if err != nil {
		return nil, err
	}
	g := GeneratorOptions{From: from, CPU: o.CPU, Stamp: o.Stamp}
	if g.Frames, err = o.frames(from); err != nil {
		return nil, err
	}
	if o.Stamp && o.File == "" {
		g.Flows = o.UDP.Flows
	}
	source, err := NewSource(o.Generator, g)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	r = &BlastReport{Interface: o.Device, Generator: o.Generator, CPU: o.CPU, Frames: len(g.Frames), Asked: o.Rate / 1e6}
	return r, r.send(ctx, o, source, from)
}

// check refuses options that contradict each other, and fills in defaults.
func (o *BlastOptions) check() error {
	if o.Generator == "" {
		o.Generator = KernelSource
	}
	if o.CPU < 0 {
		o.CPU = LastCPU()
	}
	switch {
	case o.Generator != KernelSource && o.Generator != TcpreplaySource:
		return optionErrorf("generator %q: there are %s and %s", o.Generator, KernelSource, TcpreplaySource)
	case o.Generator == TcpreplaySource && o.Stamp:
		return optionErrorf("tcpreplay cannot stamp packets: use the generator %s", KernelSource)
	case math.IsNaN(o.Rate) || o.Rate != 0 && o.Rate < 1 || o.Rate > 1e9:
		return optionErrorf("a rate of %v packets a second: give 1 to 1e9, or 0 for as many as possible", o.Rate)
	case len(o.DstMAC)%6 != 0 || len(o.SrcMAC)%6 != 0:
		return optionErrorf("Ethernet addresses have 6 bytes: %s and %s", o.DstMAC, o.SrcMAC)
	case o.Duration < 0:
		return optionErrorf("send for %v: give a time above 0", o.Duration)
	case PickCPU(func(cpu int) bool { return cpu == o.CPU }) < 0:
		return optionErrorf("CPU %d is not one that this process may use", o.CPU)
	case o.File == "":
		return o.UDP.Check()
	}
	return nil
}

// frames reads or makes the frames, and checks that they fit the device's MTU.
func (o *BlastOptions) frames(from End) (frames [][]byte, err error) {
	if o.File == "" {
		o.UDP.DstMAC, o.UDP.SrcMAC = o.DstMAC, o.SrcMAC
		frames, err = o.UDP.Frames(from)
	} else if frames, err = ReadFrames(o.File); err == nil {
		replaceMACs(frames, o.DstMAC, o.SrcMAC)
	}
	if err != nil {
		return nil, err
	}
	dev, err := from.Netns.nl.LinkByIndex(from.Index)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", from.Name, err)
	}
	for i, f := range frames {
		if limit := dev.Attrs().MTU + MinFrame; len(f) > limit {
			return nil, fmt.Errorf("frame %d has %d bytes: %s takes %d, for its MTU is %d", i, len(f), from.Name, limit,
				dev.Attrs().MTU)
		}
	}
	return frames, nil
}

// replaceMACs replaces the Ethernet addresses of frames by those that are given. It leaves an address that is nil.
func replaceMACs(frames [][]byte, dst, src net.HardwareAddr) {
	for _, f := range frames {
		if len(f) >= MinFrame {
			copy(f[0:6], dst)
			copy(f[6:12], src)
		}
	}
}

// outcome is the result of a source's run.
type outcome struct {
	sent Sent
	err  error
}

// send runs the source, reports progress each second, and fills in what was sent.
func (r *BlastReport) send(ctx context.Context, o BlastOptions, source Source, from End) error {
	before, err := readTransmit(from)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if o.Duration > 0 {
		ctx, stop = context.WithTimeout(ctx, o.Duration)
		defer stop()
	}
	count := o.Count
	if count == 0 {
		count = math.MaxInt64
	}
	if o.Rate > 0 && o.Duration > 0 {
		count = min(count, uint64(math.Ceil(o.Rate*o.Duration.Seconds())))
	}
	source.Pace(o.Rate)
	done := make(chan outcome, 1)
	go func() {
		sent, err := source.Run(ctx, count)
		done <- outcome{sent, err}
	}()
	end := watchTransmit(from, before, o.Progress, done)
	if errors.Is(end.err, context.Canceled) || errors.Is(end.err, context.DeadlineExceeded) {
		end.err = nil
	}
	r.Packets, r.Bytes, r.Seconds = end.sent.Packets, end.sent.Bytes, end.sent.Elapsed.Seconds()
	if r.Packets > 1 && r.Seconds > 0 {
		// N packets have N-1 intervals between them.
		r.Mpps = float64(r.Packets-1) / r.Seconds / 1e6
	}
	r.Reached = r.Asked == 0 || r.Packets == 1 || r.Mpps >= reachedShare*r.Asked
	after, err := readTransmit(from)
	r.Dropped = after.dropped - before.dropped
	return errors.Join(end.err, err)
}

// Err returns an error if the rate that was asked for was not reached.
func (r *BlastReport) Err() error {
	if r.Reached {
		return nil
	}
	return fmt.Errorf("%s: %.0f packets a second sent, %.0f were asked for: the generator cannot send more on CPU %d, or other "+
		"work has the CPU", r.Interface, r.Mpps*1e6, r.Asked*1e6, r.CPU)
}

// WriteJSON writes the report as one JSON object.
func (r *BlastReport) WriteJSON(w io.Writer) error {
	return show.JSON(w, r)
}

// WriteText writes the report in one line.
func (r *BlastReport) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s: sent %s, %s in %.3f s: %.0f packets/s; %d not taken by the device\n",
		r.Interface, text.Count(r.Packets, "packet"), text.Count(r.Bytes, "byte"), r.Seconds, r.Mpps*1e6, r.Dropped)
	return err
}
