// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"maps"

	"culvert/internal/bench/load"
)

// Places that lose packets and count them, in a Sample.
const (
	LostToDevice = "device_queue"   // the queue into the device was full
	LostAtDevice = "device_receive" // the device's veth could not handle the packet, as in a failed redirect
	lostToSink   = "sink_queue"     // the queue into the sink was full
	lostAtSink   = "sink_receive"   // the sink's veth could not handle the packet
)

// PathCount is what was received and lost since the path was laid.
type PathCount struct {
	received uint64
	lost     map[string]uint64
	// passed is how many packets the path has seen, whoever sent them.
	passed uint64
}

// Count reads all counters along the path.
func (r *VethRow) Count() (c PathCount, err error) {
	seen, err := r.Sink.Seen()
	if err != nil {
		return c, err
	}
	c.received = seen.Packets
	c.lost = map[string]uint64{}
	// Each wire loses packets at its sender, when the receiver's queue is full, or at its receiver.
	wire := func(n int, from, to load.End, queue, receive string) (sender, receiver load.EndStats, err error) {
		refused, err := r.Refused.Of(n)
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
	if r.Device == nil {
		_, _, err = wire(0, r.Path.Source, r.Path.Sink, lostToSink, lostAtSink)
		return c, err
	}
	_, in, err := wire(0, r.Path.Source, r.Path.In, LostToDevice, LostAtDevice)
	if err != nil {
		return c, err
	}
	out, _, err := wire(1, r.Path.Out, r.Path.Sink, lostToSink, lostAtSink)
	if err != nil {
		return c, err
	}
	c.passed = c.lost[LostToDevice] + in.Received + out.Received + seen.Other
	own, err := r.Device.Losses()
	maps.Copy(c.lost, own)
	return c, err
}
