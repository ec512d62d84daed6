// SPDX-License-Identifier: Apache-2.0

package bench

import "maps"

// Places that lose packets and count them, in a Sample.
const (
	lostToDevice = "device_queue"   // the queue into the device was full
	lostAtDevice = "device_receive" // the device's veth could not handle the packet, as in a failed redirect
	lostToSink   = "sink_queue"     // the queue into the sink was full
	lostAtSink   = "sink_receive"   // the sink's veth could not handle the packet
)

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
