// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"maps"

	"culvert/internal/bench/load"
)

// Keys of Sample.Lost for packets lost on the path.
const (
	LostToDevice = "device_queue"   // the queue into the device was full
	LostAtDevice = "device_receive" // the device's veth could not handle the packet, as in a failed redirect
	lostToSink   = "sink_queue"     // the queue into the sink was full
	lostAtSink   = "sink_receive"   // the sink's veth could not handle the packet
)

// PathCount has the counters of packets along a path since it was built.
type PathCount struct {
	// received counts packets that the sink counted. lost has the keys of Sample.Lost.
	received uint64
	lost     map[string]uint64
	// passed bounds the number of packets on the path, including other traffic.
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
	// A wire loses packets at its sender if the receiver's queue is full, or at its receiver.
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
