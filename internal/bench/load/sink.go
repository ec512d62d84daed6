// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// SinkOptions says what a sink counts.
type SinkOptions struct {
	// MinLen is the length in bytes of the shortest frame that is counted and dropped. Shorter ones go to the stack.
	MinLen int
	// MarkOffset, if not 0, restricts the sink to frames that have the 32-bit big-endian number Mark at that offset in
	// bytes. Others go to the stack.
	MarkOffset int
	Mark       uint32
	// Port, if not 0, restricts the sink to UDP packets for that port, over IPv4 or IPv6 without VLAN tags and extension
	// headers.
	Port uint16
	// Tags, if not 0, makes the sink also count frames by the 32-bit big-endian number at TagOffset, in bytes, which has to
	// be below Tags.
	Tags, TagOffset int
	// Flows, if not 0, makes the sink read the stamps of a Generator with that many flows (see Order and Latency).
	// Frames without a stamp, or of another flow, go to the stack.
	Flows int
	// Untimed is set if stamps have no time. There is no Latency then.
	Untimed bool
}

// Seen are the counters of a sink.
type Seen struct {
	Packets uint64
	Bytes   uint64
	// Other counts frames that went to the stack.
	Other uint64
}

// Sink counts and drops the frames that arrive at a device.
type Sink struct {
	objs struct {
		Sink   *ebpf.Program `ebpf:"bench_sink"`
		Seen   *ebpf.Map     `ebpf:"seen"`
		Tags   *ebpf.Map     `ebpf:"tags"`
		Flows  *ebpf.Map     `ebpf:"flows"`
		Delays *ebpf.Map     `ebpf:"delays"`
	}
	link  link.Link
	tags  int
	flows int
	timed bool
}

// NewSink attaches a sink to a device in native mode.
func NewSink(at End, o SinkOptions) (*Sink, error) {
	if o.Flows < 0 || o.Flows > maxFlows {
		return nil, fmt.Errorf("a sink for %d flows asked for: there can be 1 to %d", o.Flows, maxFlows)
	}
	spec, err := loadBenchSink()
	if err != nil {
		return nil, err
	}
	err = spec.Variables[benchSinkVarMinLen].Set(uint32(o.MinLen))
	if o.MarkOffset > 0 {
		err = errors.Join(err, spec.Variables[benchSinkVarMarkOffset].Set(int32(o.MarkOffset)),
			spec.Variables[benchSinkVarMark].Set(o.Mark))
	}
	err = errors.Join(err, spec.Variables[benchSinkVarUdpPort].Set(o.Port))
	if o.Tags > 0 {
		spec.Maps[benchSinkMapTags].MaxEntries = uint32(o.Tags)
		err = errors.Join(err, spec.Variables[benchSinkVarTagOffset].Set(int32(o.TagOffset)))
	}
	if o.Flows > 0 {
		spec.Maps[benchSinkMapFlows].MaxEntries = uint32(o.Flows)
		err = errors.Join(err, spec.Variables[benchSinkVarFlowCount].Set(uint32(o.Flows)),
			spec.Variables[benchSinkVarTimed].Set(!o.Untimed))
	}
	if err != nil {
		return nil, fmt.Errorf("prepare the sink: %w", err)
	}
	s := &Sink{tags: o.Tags, flows: o.Flows, timed: o.Flows > 0 && !o.Untimed}
	if err := spec.LoadAndAssign(&s.objs, nil); err != nil {
		return nil, fmt.Errorf("load the sink: %w", err)
	}
	if s.link, err = at.AttachXDP(s.objs.Sink); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Seen reads the counters, summed over CPUs, since the sink was attached.
func (s *Sink) Seen() (Seen, error) {
	var perCPU []benchSinkCount
	if err := s.objs.Seen.Lookup(uint32(0), &perCPU); err != nil {
		return Seen{}, fmt.Errorf("read the sink's counters: %w", err)
	}
	var sum Seen
	for _, c := range perCPU {
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
		sum.Other += c.Other
	}
	return sum, nil
}

// Settled waits until nothing has arrived for quiet, at most for limit, and reads the counters.
func (s *Sink) Settled(quiet, limit time.Duration) (Seen, error) {
	end := time.Now().Add(limit)
	last, err := s.Seen()
	for err == nil && time.Now().Before(end) {
		time.Sleep(quiet)
		var now Seen
		if now, err = s.Seen(); err == nil && now.Packets == last.Packets {
			return now, nil
		}
		last = now
	}
	return last, err
}

// Tags reads the number of packets with each tag, since the sink was attached.
func (s *Sink) Tags() ([]uint64, error) {
	counts := make([]uint64, s.tags)
	if s.tags == 0 {
		return counts, nil
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("read the sink's counts: %w", err)
	}
	// A system call for each tag would take too long.
	const batch = 1 << 14
	var cursor ebpf.MapBatchCursor
	keys, values := make([]uint32, batch), make([]uint64, batch*cpus)
	for done := false; !done; {
		n, err := s.objs.Tags.BatchLookup(&cursor, keys, values, nil)
		if done = errors.Is(err, ebpf.ErrKeyNotExist); err != nil && !done {
			return nil, fmt.Errorf("read the sink's counts: %w", err)
		}
		for i, tag := range keys[:n] {
			for _, count := range values[i*cpus : (i+1)*cpus] {
				counts[tag] += count
			}
		}
	}
	return counts, nil
}

// Close detaches and unloads the sink.
func (s *Sink) Close() error {
	var err error
	if s.link != nil {
		err = s.link.Close()
	}
	return errors.Join(err, s.objs.Sink.Close(), s.objs.Seen.Close(), s.objs.Tags.Close(), s.objs.Flows.Close(),
		s.objs.Delays.Close())
}
